"""The laboratory: each file a study of one claim, with its table, its picture and its verdict."""

from attnfun.lab.studies.study import GROUPS, NAMES, Study, Verdict, find

__all__ = ["GROUPS", "NAMES", "Study", "Verdict", "find"]
