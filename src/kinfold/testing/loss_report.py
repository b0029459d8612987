"""What a check of a loss found."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Status: TypeAlias = Literal["holds", "fails", "skipped"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes:
        check: The name of the check.
        status: "holds", "fails", or "skipped" where the check has no meaning for this loss or cannot run here.
        message: What was observed, or why it was skipped.
    """

    check: str
    status: Status
    message: str = ""


@dataclass(frozen=True)
class LossReport:
    """The findings about one loss.

    Attributes:
        loss: The name of the loss.
        findings: One for each check, in the order in which they ran.
    """

    loss: str
    findings: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The findings of checks that failed."""
        return tuple(finding for finding in self.findings if finding.status == "fails")

    def __getitem__(self, check: str) -> CheckResult:
        """Return the finding of a check by its name."""
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(check)

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.findings)

    def __str__(self) -> str:
        width = max((len(finding.check) for finding in self.findings), default=0)
        lines = [f"{f.status:8}{f.check:{width}}  {f.message}".rstrip() for f in self.findings]
        return "\n".join([self.loss, *lines])

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"loss": self.loss, "passed": self.passed, "findings": [asdict(finding) for finding in self.findings]}
