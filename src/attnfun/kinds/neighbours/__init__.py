"""The furthest or the nearest of points on a sphere: the kind behind `neighbours`."""

from attnfun.kinds import token_kind

KIND = token_kind("neighbours", "PointsOnSphere", "Neighbours", commands=__name__)
