"""Findings about a model, and the report that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """Something about a model that matters for its training.

    Attributes:
        kind: Its kind, in one or two words: "merged weights", "folded BatchNormalization".
        message: One or two sentences.
        fix: The argument of the export call or of `generate_artifacts` that mends it.
        tensors: The tensors that it is about.
        nodes: The names of the nodes that it is about.
        changes_training: Whether other values are trained than those of the module that was
            exported, or in another way.
    """

    kind: str
    message: str
    fix: str
    tensors: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    changes_training: bool = False

    def __str__(self) -> str:
        """The message and the fix, on one line."""
        return f"{self.message} {self.fix}"


@dataclass(frozen=True)
class Report:
    """The result of `blockdsl.inspect`.

    Attributes:
        findings: The findings, those that change training first.
        summary: One line about what is trained and what is left constant.
        trained: The names of the tensors that training would update by default.
    """

    findings: list[Finding] = field(default_factory=list)
    summary: str = ""
    trained: list[str] = field(default_factory=list)

    @property
    def would_train(self) -> bool:
        """Whether there is a parameter that a gradient reaches."""
        return bool(self.trained)

    @property
    def changes_training(self) -> bool:
        """Whether a finding changes what is trained, or how."""
        return any(finding.changes_training for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        """Iterate over the findings."""
        return iter(self.findings)

    def __str__(self) -> str:
        """The report as text."""
        verdict = "trains" if self.would_train else "does not train"
        lines = [f"The model {verdict}: it {self.summary}."]
        for finding in self.findings:
            mark = "!" if finding.changes_training else "-"
            lines += [f"{mark} {finding.kind}: {finding.message}", f"    {finding.fix}"]
        return "\n".join(lines)
