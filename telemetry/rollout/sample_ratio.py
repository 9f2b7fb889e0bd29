"""Whether the cohorts have the sizes that the plan gives them: if not, callers were lost on the way to one of them, and
no other figure can be trusted (Fabijan et al., *Diagnosing Sample Ratio Mismatch*, KDD 2019). Pure."""

from dataclasses import dataclass

from telemetry.rollout.plan import Stage


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Calls (or users) in each cohort, and how likely a split so uneven is by chance alone."""

    candidate: int
    control: int
    expected_share: float
    p_value: float

    @property
    def share(self) -> float:
        """The candidate's share of both."""
        return self.candidate / (self.candidate + self.control)


def sample_ratio(stage: Stage, candidate: int, control: int) -> SampleRatio | None:
    """The split against the stage's shares (exact binomial test, two-sided); None without a call.

    Raises ValueError for a stage without a control.
    """
    if not stage.has_control:
        raise ValueError(f"stage {stage.name} has no control")
    total = candidate + control
    if not total:
        return None
    # Imported where it is used: it takes half a second.
    from scipy import stats

    expected = stage.share / (stage.share + stage.control_share)
    return SampleRatio(candidate, control, expected, float(stats.binomtest(candidate, total, expected).pvalue))
