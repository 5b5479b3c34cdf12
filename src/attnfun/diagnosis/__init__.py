"""What is wrong with an attention head over fixed keys: its figures, what they mean in words, and how to fix it."""

from attnfun.diagnosis.findings import AxisCells, Figures, Finding, Mend, findings
from attnfun.diagnosis.foreign import foreign_head, is_foreign
from attnfun.diagnosis.measure import measure, mended, scaled
from attnfun.diagnosis.rounding import DTYPES
from attnfun.diagnosis.subject import Subject

__all__ = ["DTYPES", "AxisCells", "Figures", "Finding", "Mend", "Subject", "findings", "foreign_head", "is_foreign"]
__all__ += ["measure", "mended", "scaled"]
