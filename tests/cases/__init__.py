"""The table of cases: every row of every family's `CASES`.

A new file here is found by itself. One row of it buys the tests of test_forward.py and
test_gradient.py.
"""

from importlib import import_module
from pkgutil import iter_modules

from blockdsl.testing import Case

FAMILIES = {
    family.name: import_module(f"{__name__}.{family.name}").CASES
    for family in iter_modules(__path__)
}

CASES: list[Case] = [
    case for rows in FAMILIES.values() for row in rows for case in row.at_each_opset()
]
