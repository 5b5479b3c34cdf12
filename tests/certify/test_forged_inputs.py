"""A label may not speak of an input, and a program without steps is no crash."""

from __future__ import annotations

import dataclasses

import numpy as np

import attnfun as af
from attnfun.certify import Status
from attnfun.kinds.function.prove import prove
from attnfun.network import Label, Labels, Network
from certify.hunting import function


def test_a_label_named_after_an_input_is_never_believed() -> None:
    """x is labelled as a spike that no sample meets: the error is 1, and nothing may be proved."""
    target = function("x + relu(1 - 1000000000*abs(x-0.3)) + exp(y)", "x=0:1;y=0:1")
    network = af.compile("x + exp(y)", "x=0:1;y=0:1", 1e-6, method="compose").network
    assert network.labels is not None and target.graph is not None
    graph = target.graph
    spike, x = graph.nodes[graph.outputs[0]].args[0], 0
    exp = graph.nodes[graph.outputs[0]].args[1]
    old = dataclasses.replace(network.labels.coordinates[0], phi=exp, argument=graph.nodes[exp].args[0])
    forged = dataclasses.replace(network, labels=Labels(graph, (Label("x", spike, x, 0.0, 0.0), old)))
    assert prove(forged, target, eps=1e-6).status is not Status.PROVED


def test_labels_without_a_step() -> None:
    target = function("2*x + y/3", "x=0:1;y=0:1")
    assert target.graph is not None
    box = (target.box.low_array, target.box.high_array)
    weights = np.array([[2.0, 1 / 3]])
    network = Network(("x", "y"), (), weights, np.zeros(1), target.outputs, box, labels=Labels(target.graph, ()))
    assert prove(network, target, eps=1e-6).status is Status.PROVED


def test_forms_beyond_the_largest_box_are_refined_in_the_inputs() -> None:
    net = af.compile("log(1e160*x+2e160*y)*z", "x=1:2;y=1:2;z=0:1", 1e-4, method="compose")
    assert net.certificate.status is Status.PROVED
