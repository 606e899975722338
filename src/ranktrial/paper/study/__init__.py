"""The paper's experiments: plan, run, results; resumable, on one machine or a Dask cluster."""

from ranktrial import extras

if refusal := extras.missing("study", "ranktrial.paper.study"):
    raise refusal

from ranktrial.paper.study.plan import DataPlan, PlanError, StudyPlan, Task, UserPlan, read_plan
from ranktrial.paper.study.run import StudyRun, run_study
from ranktrial.paper.study.summary import StudyCost, StudySummary, study_cost, summarise

__all__ = [
    "DataPlan",
    "PlanError",
    "StudyCost",
    "StudyPlan",
    "StudyRun",
    "StudySummary",
    "Task",
    "UserPlan",
    "read_plan",
    "run_study",
    "study_cost",
    "summarise",
]
