"""Operator schemas, looked up once: the single source of truth for what an operator takes.

The schema of the model's own opset decides the form of a node; the newest schema decides how a
gradient rule is written. Both come from onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

import onnx
from onnx import defs, helper

from blockdsl.errors import OpError, near

Option = defs.OpSchema.FormalParameterOption

MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"


@dataclass(frozen=True)
class Parameter:
    """A formal input or output of an operator."""

    name: str
    type: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, eq=False)
class Operator:
    """One version of an operator, as its schema describes it."""

    name: str
    domain: str
    version: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, onnx.AttributeProto | None]
    """The default of every attribute, `None` where it has none."""
    schema: defs.OpSchema | None = field(repr=False, default=None)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(p.name for p in self.inputs)

    @cached_property
    def required_outputs(self) -> int:
        """How many outputs a node has when its caller does not say."""
        return max(1, sum(not (p.optional or p.variadic) for p in self.outputs))

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The default values of the attributes that have one."""
        given = {name: proto for name, proto in self.attributes.items() if proto is not None}
        return {name: helper.get_attribute_value(proto) for name, proto in given.items()}

    def types_of(self, parameter: Parameter) -> frozenset[str]:
        """The types that one of its inputs or outputs may have, such as "tensor(float)"."""
        choices = self.schema.type_constraints if self.schema is not None else ()
        of_name = {choice.type_param_str: choice.allowed_type_strs for choice in choices}
        return frozenset(of_name.get(parameter.type, (parameter.type,)))

    def __str__(self) -> str:
        return f"{self.domain}::{self.name}" if self.domain else self.name


@cache
def operator(
    name: str, version: int, domain: str = "", deprecated: bool = False
) -> Operator | None:
    """The form of an operator in an opset, or `None` if that opset does not have it.

    Args:
        name: The operator.
        version: The opset.
        domain: Its domain.
        deprecated: Whether an opset has the operators that are deprecated in it: models use them.
    """
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None
    return None if schema.deprecated and not deprecated else _from_schema(schema)


@cache
def newest(name: str, domain: str = "") -> Operator | None:
    """The newest form of an operator that the installed onnx knows."""
    versions = _versions().get((domain, name))
    return _from_schema(versions[-1]) if versions else None


@cache
def all_attributes(name: str, domain: str = "") -> frozenset[str]:
    """The attributes that an operator has in any version."""
    return frozenset(a for s in _versions().get((domain, name), ()) for a in s.attributes)


@cache
def operator_names(domain: str = "") -> tuple[str, ...]:
    """Every operator of a domain, sorted."""
    return tuple(sorted(name for d, name in _versions() if d == domain))


@lru_cache(maxsize=1)
def _versions() -> dict[tuple[str, str], tuple[defs.OpSchema, ...]]:
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.deprecated:
            found.setdefault((schema.domain, schema.name), []).append(schema)
    return {k: tuple(sorted(v, key=lambda s: s.since_version)) for k, v in found.items()}


def require(name: str, version: int, domain: str = "") -> Operator:
    """The form of an operator in an opset.

    Raises:
        OpError: The operator does not exist, or not in this opset.
    """
    found = operator(name, version, domain)
    if found is not None:
        return found
    shown = f"{domain}::{name}" if domain else name
    versions = _versions().get((domain, name))
    if versions is None:
        raise OpError(f"ONNX has no operator {shown!r}. {near(name, operator_names(domain))}")
    first, last = versions[0].since_version, versions[-1].since_version
    if version < first:
        raise OpError(
            f"{shown} exists from opset {first} on, and the model has opset {version}. Write it "
            f"with older operators, or convert the model with onnx.version_converter."
        )
    raise OpError(
        f"{shown} was removed after opset {last}, and the model has opset {version}. "
        f"Use the operator that replaced it."
    )


def attribute_kind(form: Operator, attribute: str) -> str:
    """The type of an attribute as `AttributeProto` names it ("INTS"), "" if it is not known."""
    if form.schema is None:
        return ""
    kind: Any = form.schema.attributes[attribute].type
    name: str = kind.name
    return name


def _from_schema(schema: defs.OpSchema) -> Operator:
    def parameter(p: defs.OpSchema.FormalParameter) -> Parameter:
        return Parameter(
            p.name, p.type_str, p.option == Option.Optional, p.option == Option.Variadic
        )

    return Operator(
        schema.name,
        schema.domain,
        schema.since_version,
        tuple(map(parameter, schema.inputs)),
        tuple(map(parameter, schema.outputs)),
        {
            name: a.default_value if a.default_value.name else None
            for name, a in schema.attributes.items()
        },
        schema,
    )
