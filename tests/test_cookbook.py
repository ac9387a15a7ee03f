"""Every recipe of the cookbook runs on each engine, checks itself, and is short."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

COOKBOOK = Path(__file__).parents[1] / "cookbook"
RECIPES = sorted(COOKBOOK.glob("*.py"))
LONGEST = {"digits.py": 130}  # the main job is the whole path


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_runs(recipe, engine, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(COOKBOOK.parent), "BLOCKDSL_ENGINE": engine}
    done = subprocess.run(
        [sys.executable, str(recipe)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    if recipe.name == "digits.py":
        assert f"engine            {engine}" in done.stdout


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_short_and_ends_in_assertions(recipe):
    text = recipe.read_text("utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    assert "# %%" in text
    assert len(text.splitlines()) < LONGEST.get(recipe.name, 80)
    assert isinstance(_last_statement(tree.body), ast.Assert)


def _last_statement(body):
    last = body[-1]
    return _last_statement(last.body) if isinstance(last, ast.For | ast.With) else last


def test_recipes_are_listed_and_use_no_torch():
    listed = (COOKBOOK / "README.md").read_text("utf-8")
    for recipe in RECIPES:
        assert f"({recipe.name})" in listed
        assert "torch" not in _imported(ast.parse(recipe.read_text("utf-8")))


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
