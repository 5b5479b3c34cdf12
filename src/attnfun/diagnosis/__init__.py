"""What is wrong with an attention head over fixed keys: its figures, what they mean in words, and how to fix it."""

from attnfun.diagnosis.findings import AxisCells, Figures, Finding, Fix, findings
from attnfun.diagnosis.foreign import foreign_head, is_foreign
from attnfun.diagnosis.measure import fixed, measure, scaled
from attnfun.diagnosis.rounding import DTYPES
from attnfun.diagnosis.subject import Subject

__all__ = ["DTYPES", "AxisCells", "Figures", "Finding", "Fix", "Subject", "findings", "foreign_head", "is_foreign"]
__all__ += ["measure", "fixed", "scaled"]
