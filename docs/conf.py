"""Settings of the documentation: `python -m sphinx -W -b html docs docs/_build/html`."""

import blockdsl

project = "blockdsl"
author = "blockdsl contributors"
copyright = author
release = version = blockdsl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"blockdsl {release}"

# Docstrings are Google style; a single backtick means code, there and in the pages.
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
