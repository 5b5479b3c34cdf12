"""What no code can know about itself: which test holds which claim, what is only sampled, what nobody has done yet.

`claims` writes it into CLAIMS.md; a test checks that every file and every test named here exists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tested:
    """A claim that tests hold, on the cases they run; `tests` are files or `file::test`."""

    claim: str
    tests: tuple[str, ...]


TESTED = (
    Tested(
        "every algebra contains the exact value: intervals, balls, complex balls, power series, gradients",
        (
            "tests/expressions/test_intervals.py::test_a_random_expression_over_a_box_contains_its_values_at_points",
            "tests/expressions/test_balls.py::test_a_random_expression_over_a_box_contains_its_values_at_points",
            "tests/expressions/test_balls.py::test_a_complex_ball_contains_the_complex_and_the_real_values",
            "tests/expressions/test_series.py::test_taylor_polynomial_with_remainder_contains_the_value",
            "tests/expressions/test_gradient.py::test_partials_over_a_box_contain_the_series_slope_at_points",
        ),
    ),
    Tested(
        "no complex ball is finite where it touches a branch cut or a pole",
        ("tests/expressions/test_balls.py::test_no_finite_complex_ball_touches_a_cut_or_a_pole",),
    ),
    Tested(
        "a removable 0/0 has its limit in every algebra, no certificate fails at or near it, and poles are refused",
        (
            "tests/expressions/test_ratio.py::test_every_algebra_contains_the_value_at_every_point_of_a_ball",
            "tests/targets/test_removable.py::test_a_pole_is_refused_with_the_subexpression_and_a_point",
            "tests/certify/test_extension.py::test_no_point_at_or_near_the_singularity_contradicts_the_bound",
            "tests/certify/test_extension.py::test_a_derivation_that_leaves_open_what_the_target_is_does_not_pass",
        ),
    ),
    Tested(
        "any text is read or refused in one line; no code is evaluated, nothing is unpickled",
        (
            "tests/expressions/test_parse.py::test_any_text_is_read_or_refused",
            "tests/expressions/test_parse.py::test_hostile_text_is_one_line",
            "tests/test_layers.py::test_no_code_is_ever_evaluated_or_unpickled",
        ),
    ),
    Tested(
        "dense, factorised and local evaluation agree; what the local route drops is within its bound",
        (
            "tests/network/test_evaluate.py::test_every_route_agrees_on_deep_networks",
            "tests/network/test_evaluate.py::test_every_route_agrees_on_partitions",
            "tests/network/test_evaluate.py::test_dropped_mass_is_never_above_its_bound",
        ),
    ),
    Tested(
        "self, cross and joint literal forms and torch's attention compute the same network; foreign tokens weigh 0",
        (
            "tests/network/test_literal.py::test_every_literal_form_agrees_with_the_memory_form",
            "tests/network/test_literal.py::test_shut_out_tokens_have_weight_exactly_zero",
            "tests/network/test_literal.py::test_torch_agrees_with_one_attention_call_a_layer",
        ),
    ),
    Tested(
        "a file comes back bit for bit; a flipped bit, a cut or a foreign file is noticed",
        (
            "tests/network/test_file.py::test_round_trip_is_bit_for_bit",
            "tests/network/test_file.py::test_any_flipped_bit_is_noticed",
            "tests/network/test_file.py::test_a_cut_file_is_noticed_at_every_length",
            "tests/network/test_file.py::test_foreign_files_are_noticed",
        ),
    ),
    Tested(
        "the checker imports no construction, and runs where none can be imported",
        (
            "tests/test_layers.py::test_lower_rooms_never_import_higher_ones",
            "tests/test_layers.py::test_the_checker_runs_where_no_construction_can_be_imported",
        ),
    ),
    Tested(
        "no certificate is below the worst error that a hunt finds, for weights perturbed by 1e-12 to 1e-1",
        (
            "tests/certify/test_fuzz.py::test_no_certificate_is_below_the_worst_error_found",
            "tests/certify/test_composition.py::test_bounds_hold_for_perturbed_weights",
            "tests/certify/test_tensor.py::test_bounds_hold_for_perturbed_weights",
        ),
    ),
    Tested(
        "a program counts as the target by exact rewrites only; forged labels and swapped heads are never proved",
        (
            "tests/certify/test_identity.py::test_a_forgery_is_never_accepted",
            "tests/certify/test_identity.py::test_a_relative_change_of_1e_15_is_never_accepted",
            "tests/certify/test_identity.py::test_what_is_accepted_is_equal_and_defined",
            "tests/certify/test_composition.py::test_a_forged_label_is_never_proved",
            "tests/certify/test_tensor.py::test_forged_labels_are_not_proved",
            "tests/certify/test_composition.py::test_swapped_heads_are_not_proved",
            "tests/certify/test_composition.py::test_one_changed_weight_of_a_file_is_seen",
        ),
    ),
    Tested(
        "weights of an MLP are read exactly, no point leaves the ranges of its units, and its attention network, run by"
        " torch, stays within the bound proved against the MLP; a unit that changes sign is never read as affine",
        (
            "tests/targets/test_mlp.py::test_weights_are_taken_exactly",
            "tests/targets/test_relu_ranges.py::test_no_point_leaves_the_ranges",
            "tests/targets/test_relu_ranges.py::test_ends_hold_in_exact_arithmetic",
            "tests/constructions/test_relu_network.py::test_an_mlp_is_proved_and_torch_agrees",
            "tests/constructions/test_relu_network.py::test_bounds_hold_for_spoilt_weights",
            "tests/constructions/test_relu_network.py::test_a_unit_that_changes_sign_is_never_taken_for_affine",
        ),
    ),
    Tested(
        "every computation of a composed network, torch's included, stays within its proved bound",
        (
            "tests/certify/test_composition.py::test_every_computation_lies_in_the_balls_of_its_rounding",
            "tests/certify/test_composition.py::test_torch_keeps_the_proved_bound",
        ),
    ),
    Tested(
        "local refinement claims no less than the error on any sub-box, and norms no less than theirs at and near 0,"
        " for good and for spoilt weights",
        (
            "tests/certify/test_refine.py::test_every_sub_box_holds",
            "tests/certify/test_refine.py::test_spoilt_weights",
            "tests/certify/test_pinned.py::test_the_pinned_bound_holds",
            "tests/certify/test_pinned.py::test_norms_are_proved",
            "tests/certify/test_pinned.py::test_a_square_that_cannot_be_widened_is_not_pinned",
        ),
    ),
    Tested(
        "the same of MLPs: no bound by pieces is below the true error, for any units and for perturbed weights; forged"
        " labels are not proved; every computation of a block is within its rounding",
        (
            "tests/certify/test_pieces.py::test_no_point_is_above_the_bound_and_none_needed_to_be",
            "tests/certify/test_pieces.py::test_every_computation_of_a_block_is_within_its_rounding",
            "tests/certify/test_pieces.py::test_bounds_hold_for_perturbed_weights",
            "tests/certify/test_pieces.py::test_one_changed_weight_of_a_file_is_seen",
            "tests/certify/test_pieces.py::test_labels_of_mlps_are_claims_too",
        ),
    ),
    Tested(
        "a broken line takes about ¼ ∫ √|g''| du/√ε units, and one a kink",
        (
            "tests/constructions/test_spline.py::test_units_are_a_quarter_of_the_integral_over_the_root_of_eps",
            "tests/constructions/test_spline.py::test_a_broken_line_takes_one_unit_a_kink_and_is_exact",
        ),
    ),
    Tested(
        "sequence networks: no bound is below the worst error that a hunt over sequences finds, in any form and for"
        " weights spoilt by 1e-12 to 1e-1; forged heads, networks, positions and targets are never proved",
        (
            "tests/certify/test_sequence.py::test_no_bound_is_below_the_worst_error_found",
            "tests/certify/test_sequence.py::test_bounds_hold_for_spoilt_weights",
            "tests/certify/test_sequence.py::test_no_forgery_is_proved",
            "tests/certify/test_gathering.py::test_no_aggregate_is_farther_off_than_its_bound",
            "tests/certify/test_gathering.py::test_what_the_soft_maximum_lacks_is_attained",
            "tests/targets/test_slopes.py::test_no_two_near_points_differ_by_more_than_the_change_bound",
        ),
    ),
    Tested(
        "the sequence maps that ship are proved by every construction that fits, and refused with their number by the"
        " others; equivariant ones commute with permutations (partitions up to twice their bound); torch runs one"
        " attention call a layer",
        (
            "tests/test_sequences.py::test_the_maps_that_ship_are_proved_by_every_construction_that_fits",
            "tests/test_sequences.py::test_what_does_not_fit_is_refused_with_its_number",
            "tests/test_sequences.py::test_equivariant_maps_give_equivariant_networks",
            "tests/network/test_sequence.py::test_plain_self_attention_is_the_same_network",
            "tests/network/test_sequence.py::test_torch_runs_one_attention_a_layer_and_keeps_the_bound",
        ),
    ),
    Tested(
        "ranges of expressions over a box contain the true ones, whatever the budget",
        (
            "tests/targets/test_ranges.py::test_random_expressions_stay_in_their_ranges",
            "tests/targets/test_ranges.py::test_any_budget_gives_a_valid_range",
            "tests/targets/test_ranges.py::test_a_spike_that_samples_do_not_see_is_in_the_range",
        ),
    ),
    Tested(
        "a composed program is the target, and each of its steps a function of an affine form of earlier ones",
        (
            "tests/constructions/test_compose.py::test_a_program_is_the_target",
            "tests/constructions/test_compose.py::"
            "test_steps_are_functions_of_arguments_that_are_affine_in_earlier_steps",
        ),
    ),
    Tested(
        "the sizes of heads of one variable at 1e-6, and that their keys are tangent lines of a convex potential",
        (
            "tests/constructions/test_tangent.py::test_few_keys_and_small_values_at_1e_6",
            "tests/constructions/test_tangent.py::test_keys_are_tangent_lines_of_a_convex_potential",
        ),
    ),
    Tested(
        "interpolation: the published bound is proved, and attained by the published points; half a spacing with many"
        " heads; 0.08 of a spacing at the best temperature",
        (
            "tests/constructions/test_interpolation.py::"
            "test_the_published_bound_is_proved_and_attained_by_the_published_points",
            "tests/constructions/test_interpolation.py::test_published_heads_are_proved_at_half_a_spacing",
            "tests/constructions/test_interpolation.py::"
            "test_the_best_temperature_is_proved_below_a_twelfth_of_the_spacing",
        ),
    ),
    Tested(
        "every construction, on its cases: bound ≥ true error, bound ≤ ε; forms, routes and file agree; sizes are as"
        " planned, and the same seed gives the same bits",
        ("tests/constructions/test_conformance.py::test_conforms",),
    ),
    Tested(
        "the bound of a linear in-context network is nearly attained by aligned prompts and exceeded by none, for any"
        " class, scale, dtype and changed weights; an entry outside its pattern is never proved",
        (
            "tests/in_context/test_proof.py::test_aligned_prompts_come_close_to_the_bound_and_stay_below",
            "tests/in_context/test_proof.py::test_no_prompt_of_a_random_class_is_above_the_bound",
            "tests/in_context/test_proof.py::test_an_entry_outside_the_pattern_is_never_proved",
            "tests/in_context/test_proof.py::test_heads_that_see_other_tokens_are_not_proved",
            "tests/in_context/test_networks.py::test_torch_keeps_the_proved_bound",
            "tests/in_context/test_proof.py::"
            "test_partial_sums_of_mirrored_terms_stay_within_their_bound_in_any_order",
            "tests/in_context/test_proof.py::test_ridge_of_condition_five_is_proved_to_nine_digits",
        ),
    ),
    Tested(
        "the bound of one prompt of a regression in context is never below the exact error and hardly above it, for"
        " dependent and nearly dependent columns, more columns than examples, scales far apart and separable labels",
        (
            "tests/in_context/test_prompt.py::"
            "test_least_squares_and_ridge_are_bounded_by_their_error_and_undetermined_only_off_the_rows",
            "tests/in_context/test_prompt.py::test_the_lasso_is_bounded_by_its_error",
            "tests/in_context/test_prompt.py::test_logistic_regression_is_bounded_by_its_error",
        ),
    ),
    Tested(
        "the bounds of lasso and logistic regression in context are exceeded by no hard or searched prompt, for any"
        " class, scale, dtype and changed weights; an entry outside their pattern is never proved",
        (
            "tests/in_context/test_lasso_logistic.py::test_no_prompt_of_a_random_class_is_above_the_bound",
            "tests/in_context/test_lasso_logistic.py::test_an_entry_outside_the_pattern_is_never_proved",
            "tests/in_context/test_lasso_logistic.py::test_steps_that_differ_tokens_and_read_outs_are_refused",
            "tests/in_context/test_lasso_logistic.py::test_a_large_c_is_proved_and_true_for_separable_examples",
            "tests/in_context/test_lasso_logistic.py::test_sums_over_examples_and_readings_are_within_their_errors",
        ),
    ),
    Tested(
        "ridge, lasso and logistic regression in context: their depths on unseen data, exact supports, a predicted"
        " error within ten times of the measured one, one attention call a layer in torch",
        (
            "tests/in_context/test_networks.py::test_ridge_is_proved_to_be_within_eps_in_so_many_layers",
            "tests/in_context/test_networks.py::test_lasso_finds_predictions_and_support",
            "tests/in_context/test_networks.py::test_logistic_regression",
            "tests/in_context/test_networks.py::test_the_predicted_error_is_within_ten_times_of_the_measured_one",
            "tests/in_context/test_networks.py::test_torch_runs_the_same_network_with_one_attention_call_a_layer",
        ),
    ),
    Tested(
        "no certificate of a relation is below an error that random, corner, edge and searched points show, for towers,"
        " for features alone, and for coefficients and weights perturbed by 1e-12 to 1e-1; forged ones are not proved",
        (
            "tests/relations/test_relation_proof.py::test_no_certificate_is_below_an_error_that_was_seen",
            "tests/relations/test_relation_proof.py::test_every_bound_is_above_the_error_of_spoilt_features",
            "tests/relations/test_relation_proof.py::test_spoilt_towers_are_seen_by_the_proof",
            "tests/relations/test_towers.py::test_a_tower_is_as_near_to_its_features_as_proved",
            "tests/relations/test_towers.py::test_spoilt_weights_are_never_nearer_than_proved",
            "tests/relations/test_towers.py::test_a_forged_selection_is_not_proved",
            "tests/relations/test_relation_proof.py::test_features_of_another_relation_are_not_proved",
            "tests/relations/test_relation_proof.py::test_a_file_is_proved_again_without_its_certificate",
        ),
    ),
    Tested(
        "relations that are finite sums of separable terms are expanded exactly and proved in any number of variables:"
        " no certificate is below an error that was seen; forged towers or those of another relation are not proved",
        (
            "tests/relations/test_terms.py::test_expansions_are_the_relation_and_have_its_rank",
            "tests/relations/test_terms.py::test_symmetric_expansions_are_exact_with_their_signs",
            "tests/relations/test_terms.py::test_affine_features_have_no_keys_whatever_the_number_of_variables",
            "tests/relations/test_terms.py::test_certificates_of_random_sums_hold",
            "tests/relations/test_terms.py::test_forged_towers_are_not_proved_to_be_near",
            "tests/relations/test_terms.py::test_towers_of_another_relation_are_not_proved",
        ),
    ),
    Tested(
        "relations g(u(x), v(y)) are proved from x on, networks for u and v below the towers included: no certificate"
        " is below an error that was seen, with weights of these networks perturbed by 1e-14 to 1e-2; networks of other"
        " functions, swapped outputs and networks that leave the box of the features are not proved; what NumPy loses"
        " in u and v is never more than the bound says",
        (
            "tests/relations/test_inner.py::test_a_composition_is_proved_from_x_on",
            "tests/relations/test_inner.py::test_spoilt_inner_networks_are_seen_by_the_proof",
            "tests/relations/test_inner.py::test_inner_networks_of_other_functions_are_not_proved",
            "tests/relations/test_inner.py::test_outputs_in_another_order_are_not_proved",
            "tests/relations/test_inner.py::test_a_network_that_leaves_the_box_of_the_features_is_not_proved",
            "tests/relations/test_inner.py::test_what_numpy_loses_is_never_more_than_proved",
        ),
    ),
    Tested(
        "trilinear forms, rounding included: no bound is below an error that was seen, also with spoilt coefficients;"
        " forged files are refuted, undecided or refused",
        (
            "tests/relations/test_trilinear.py::test_the_error_of_a_trilinear_form_is_never_below_what_is_seen",
            "tests/relations/test_trilinear.py::test_rounding_is_in_the_bound",
            "tests/relations/test_trilinear.py::test_a_forged_form_is_refuted_or_refused",
        ),
    ),
    Tested(
        "no certificate of soft cells is below an error seen at random points, corners, kinks, walls or by local"
        " search, for kinked relations and for weights perturbed by 1e-14 to 1e-1; spikes between cells, forged centres"
        " and other relations are not proved; slices are never called proved",
        (
            "tests/relations/test_quantised.py::test_kinked_relations_are_proved_and_no_error_is_above_the_bound",
            "tests/relations/test_quantised.py::test_the_bound_is_above_the_error_of_spoilt_weights",
            "tests/relations/test_quantised.py::test_a_spike_between_the_cells_is_never_proved_away",
            "tests/relations/test_quantised.py::test_forged_centres_and_boxes_are_seen",
            "tests/relations/test_quantised.py::test_the_bound_is_above_the_error_of_spoilt_lines",
            "tests/relations/test_cross.py::test_auto_never_samples_what_it_can_prove",
        ),
    ),
    Tested(
        "relations that are not positive semidefinite are refused with a witness that is checked in balls and again in"
        " rationals; the lower bound on the rank is never above a rank that was reached",
        (
            "tests/relations/test_relation.py::"
            "test_what_is_not_positive_semidefinite_is_refused_with_a_checked_witness",
            "tests/relations/test_relation.py::test_the_lower_bound_is_never_above_what_is_reached",
            "tests/relations/test_relation.py::test_the_lower_bound_knows_exact_ranks",
        ),
    ),
    Tested(
        "trained networks: no proved bound is below an error that was seen; the same seed gives the same bits, and a"
        " run that was interrupted, in either part, the same network and history as one that was not",
        (
            "tests/learn/test_train.py::test_a_proved_bound_of_trained_weights_holds",
            "tests/learn/test_train.py::test_the_same_seed_gives_the_same_bits_and_another_seed_others",
            "tests/learn/test_train.py::test_an_interrupted_run_ends_as_one_that_was_not",
            "tests/learn/test_train.py::test_a_killed_process_loses_no_more_than_the_row_under_way",
        ),
    ),
    Tested(
        "diagnosis: constructed heads are called healthy; a partition whose R is too small or too large, a mixing head"
        " at another temperature, values or logits too large for a dtype and the one bad head of a composed network are"
        " named, and the mend that is named mends; findings are functions of sampled figures and prove nothing",
        (
            "tests/diagnose/test_heads.py::test_constructed_heads_are_healthy",
            "tests/diagnose/test_heads.py::test_a_partition_whose_R_is_too_small_is_fuzzy_and_a_larger_R_mends_it",
            "tests/diagnose/test_heads.py::test_a_partition_whose_R_is_huge_is_a_staircase_and_a_smaller_R_mends_it",
            "tests/diagnose/test_heads.py::test_values_that_float32_cannot_carry_are_named_and_smaller_ones_mend_it",
            "tests/diagnose/test_heads.py::test_the_one_bad_head_of_a_composed_network_is_found",
            "tests/diagnose/test_findings.py::test_a_finding_follows_from_its_figures",
        ),
    ),
    Tested(
        "trained networks on tokens, towers of relations and networks of neighbours: what torch trains is what NumPy"
        " runs; the same seed gives the same bits, interrupted or not; prompts are of the declared class and their"
        " values the exact solver's; random heads keep their rank; what was sampled is called sampled",
        (
            "tests/learn/test_tokens.py::test_weights_in_units_are_the_same_weights_and_torch_trains_what_numpy_runs",
            "tests/learn/test_tokens.py::test_the_same_seed_gives_the_same_bits_whether_or_not_the_run_was_interrupted",
            "tests/learn/test_tokens.py::test_prompts_are_of_the_class_and_their_values_are_the_exact_solver_s",
            "tests/learn/test_models.py::test_towers_are_trained_in_their_own_architecture",
            "tests/learn/test_models.py::test_random_heads_learn_and_keep_their_rank",
        ),
    ),
    Tested(
        "preorders: cycles, incomparable keys and jumps are found with witnesses that replay and cannot be forged;"
        " continuous utilities raise no alarm; nothing about a callable is called proved",
        (
            "tests/preorders/test_probes.py::test_a_violation_is_found_and_replays",
            "tests/preorders/test_probes.py::test_preorders_pass_and_are_not_called_proved",
            "tests/preorders/test_probes.py::test_levels_exist_iff_no_cycle_has_a_strict_step",
            "tests/preorders/test_jumps.py::test_a_jump_is_found_and_its_witness_replays",
            "tests/preorders/test_jumps.py::test_no_false_alarm",
            "tests/preorders/test_jumps.py::test_forged_witnesses_do_not_pass",
        ),
    ),
    Tested(
        "lexicographic grids: the largest P of every format by its own arithmetic, ties beyond it, and heads that copy"
        " the best key exactly, in torch too",
        (
            "tests/preorders/test_lexicographic.py::test_the_largest_square_is_exact_and_the_next_is_not",
            "tests/preorders/test_lexicographic.py::test_beyond_the_limit_two_keys_tie",
            "tests/preorders/test_lexicographic.py::test_the_best_key_is_copied_exactly_here_and_in_torch",
            "tests/preorders/test_lexicographic.py::test_the_winner_weight_is_below_the_true_one",
        ),
    ),
    Tested(
        "the winner weight and the total variation of retrieval are attained by adversaries to 1e-12 and violated by no"
        " random scores; no query is beyond the certificate of a head, at any temperature, for spoilt and forged keys;"
        " keys that are proved to be the best are",
        (
            "tests/retrieval/test_bounds.py::test_an_adversary_attains_the_winner_weight",
            "tests/retrieval/test_bounds.py::test_an_adversary_attains_the_total_variation",
            "tests/retrieval/test_bounds.py::test_two_thousand_random_trials_without_a_violation",
            "tests/retrieval/test_bounds.py::test_intervals_cover_every_probability_often_enough",
            "tests/retrieval/test_head.py::test_no_query_is_beyond_the_certificate_at_any_temperature",
            "tests/retrieval/test_head.py::test_spoilt_key_vectors_are_seen_by_the_proof",
            "tests/retrieval/test_head.py::test_vectors_of_other_keys_or_of_another_temperature_are_not_within_eps",
            "tests/retrieval/test_head.py::test_answers_that_are_proved_are_right",
        ),
    ),
    Tested(
        "what DeepSets needs: the counted quadratic forms are the exact Schur complements, no descent finds a function"
        " of few features below the bound, no target made of H sums is said to need more, and no count is above"
        " C(D+n, n) − 1",
        (
            "tests/limits/separation/test_sets.py::"
            "test_the_counted_form_is_the_inverse_of_the_schur_complement_exactly",
            "tests/limits/separation/test_sets.py::test_no_function_of_few_features_is_nearer_than_the_bound",
            "tests/sets/test_target.py::test_no_more_features_are_called_needed_than_a_deep_sets_has",
            "tests/sets/test_verdicts.py::test_no_count_is_above_the_power_sums_that_determine_a_set",
        ),
    ),
    Tested(
        "the furthest of any number of candidates: enclosed energies contain exact fractions and references of thirty"
        " digits, a head takes the counted harmonics, and no heads with the best weights are below the bound",
        (
            "tests/limits/separation/test_candidates.py::test_energies_contain_the_exact_fractions_of_odd_dimensions",
            "tests/limits/separation/test_candidates.py::test_energies_contain_a_reference_of_thirty_digits",
            "tests/limits/separation/test_candidates.py::test_degrees_up_to_one_are_exact_for_many_candidates",
            "tests/limits/separation/test_candidates.py::"
            "test_energies_are_positive_add_up_to_one_and_do_not_depend_on_the_rule",
            "tests/limits/separation/test_candidates.py::test_what_a_head_takes_is_the_dimension_of_what_it_makes",
            "tests/limits/separation/test_candidates.py::test_one_head_with_the_best_weights_of_all_is_above_the_bound",
            "tests/limits/separation/test_candidates.py::"
            "test_two_heads_with_fitted_polynomials_for_weights_are_above_the_bound",
        ),
    ),
    Tested(
        "nearest neighbours on the Hamming cube: the expansion is the matrix of signs, no choice of coordinates and no"
        " labels of few values are below their bounds, and one number with weights of powers of two sees everything",
        (
            "tests/limits/separation/test_krawtchouk.py::test_the_expansion_is_the_matrix",
            "tests/limits/separation/test_krawtchouk.py::"
            "test_no_choice_of_coordinates_is_below_and_the_mean_is_the_upper_one",
            "tests/limits/separation/test_krawtchouk.py::test_any_labels_are_above_the_bound_by_values",
            "tests/limits/separation/test_krawtchouk.py::test_two_candidates_by_least_squares",
            "tests/limits/separation/test_krawtchouk.py::"
            "test_one_number_with_weights_of_two_powers_sees_the_whole_cube",
            "tests/limits/separation/test_cube.py::test_bounds_are_those_of_krawtchouk_rounded_outward",
        ),
    ),
    Tested(
        "networks on sets: the order of the points does not matter, power sums give the target's exact values, and no"
        " bound is below the worst error found, in NumPy or torch",
        (
            "tests/sets/test_networks.py::test_the_bound_is_proved_and_not_below_the_worst_error_found",
            "tests/sets/test_networks.py::test_the_order_of_the_points_does_not_matter",
            "tests/sets/test_networks.py::test_torch_runs_the_same_network",
            "tests/sets/test_target.py::test_power_sums_give_the_exact_values",
        ),
    ),
    Tested(
        "an order of documents is found iff there is one: end pieces, intervals, arcs",
        ("tests/limits/embedding/test_orders.py::test_an_order_is_found_iff_some_permutation_is_one",),
    ),
    Tested(
        "an embedding is accepted iff it ranks exactly, at all sizes of integers; obstructions are verified, forged"
        " ones are not, and none contradicts an embedding",
        (
            "tests/limits/embedding/test_check.py::test_the_check_agrees_with_python_integers",
            "tests/limits/embedding/test_check.py::test_obstructions_are_verified_and_forgeries_are_not",
            "tests/limits/embedding/test_check.py::test_no_obstruction_contradicts_an_embedding",
            "tests/limits/embedding/test_embed_dim.py::test_random_relations_have_certificates_that_hold",
        ),
    ),
    Tested(
        "factors of a score matrix are within their proved error, no rank that is there is excluded, and singular"
        " values lie between their ends",
        (
            "tests/limits/test_score_rank.py::test_the_error_is_never_below_the_exact_one",
            "tests/limits/test_score_rank.py::test_no_lower_bound_excludes_a_rank_that_is_there",
            "tests/limits/test_score_rank.py::test_singular_values_contain_those_of_known_matrices",
        ),
    ),
    Tested(
        "furthest and nearest neighbours: the integral of a full-rank head is its measured error and never above the"
        " proved bound; votes, tallies, scores, random heads and half-spaces are as good as predicted",
        (
            "tests/neighbours/test_full_rank.py::test_the_integral_is_the_error_of_the_network",
            "tests/neighbours/test_full_rank.py::test_the_proved_bound_is_never_below_the_integral_and_becomes_sharp",
            "tests/neighbours/test_two_layers.py::test_accuracy_of_votes",
            "tests/neighbours/test_two_layers.py::test_no_tally_is_farther_off_than_its_bound",
            "tests/neighbours/test_two_layers.py::test_no_score_is_farther_off_than_its_bound",
            "tests/neighbours/test_random_heads.py::test_the_closed_form_is_the_error_of_the_network",
            "tests/neighbours/test_random_heads.py::test_a_biased_half_space",
        ),
    ),
    Tested(
        "networks that match pairs and triples are right on adversarial tokens, within their proved margins, in NumPy"
        " and torch, up to the modulus that the dtype allows; spoilt weights are not proved; sparse averages keep their"
        " bound for every set",
        (
            "tests/matching/test_matching.py::test_every_output_is_on_its_side_of_the_proved_bounds",
            "tests/matching/test_matching.py::test_the_largest_modulus_of_a_dtype_holds_and_rounding_does_break_later",
            "tests/matching/test_matching.py::test_a_spoilt_entry_is_never_proved",
            "tests/matching/test_averages.py::test_averages_are_within_the_proved_error",
        ),
    ),
    Tested(
        "sets meet iff token 0 of the reduction has a triple; two parties reproduce a layer; no cell of a plan is both"
        " excluded and constructed",
        (
            "tests/limits/separation/test_matching.py::test_sets_meet_iff_token_0_has_a_triple",
            "tests/limits/separation/test_matching.py::test_two_parties_put_the_layer_together",
            "tests/test_planner.py::test_what_is_excluded_is_never_constructed",
        ),
    ),
    Tested(
        "a crash or a time-out of one target of a suite costs its own row and no other",
        (
            "tests/cli/test_suite.py::test_a_crash_costs_its_own_row_and_no_other",
            "tests/cli/test_suite.py::test_a_time_out_is_an_infeasible_row_and_the_rest_runs_on",
        ),
    ),
)


SAMPLED = (
    ("that a comparison callable is a continuous preorder (no violation found)", "src/attnfun/preorders.py"),
    ("how often a utility on a net agrees with its callable", "src/attnfun/constructions/preorders/net.py"),
    ("which features of a relation are taken, and how their towers are fitted", "src/attnfun/relation_search.py"),
    ("which margin the default beta of a retrieval head serves, and its wrong picks", "src/attnfun/retrieval_study.py"),
    ("how exact networks for inner functions of a relation have to be", "src/attnfun/relation_inner.py"),
    ("relations by slices, status `sampled`", "src/attnfun/certify/relation_sampled.py"),
    ("how many soft cells a relation takes, before they are proved", "src/attnfun/constructions/relations/voronoi.py"),
    ("errors of regressions in context, on request, with a search", "src/attnfun/certify/in_context_verdict.py"),
    ("`measured` errors of neighbours, and those predicted of soft heads", "src/attnfun/neighbour_networks.py"),
    ("the predicted budget of an in-context network", "src/attnfun/rehearsal.py"),
    ("how a construction chooses degrees, steps, cell counts and temperatures", "src/attnfun/constructions/auto.py"),
    ("how few keys a tangent head needs, and its error before the proof", "src/attnfun/constructions/unary/search.py"),
    ("the sensitivities by which a composed network shares ε among its steps", "src/attnfun/constructions/compose.py"),
    ("how many units a step of an MLP takes, before they are proved", "src/attnfun/constructions/unary/spline.py"),
    ("the Lipschitz constant behind “published worst case”", "src/attnfun/constructions/partition.py"),
    ("the sharpness of interpolation points, and how many are needed", "src/attnfun/constructions/unary/grid.py"),
    ("the temperature “of the smallest true error”", "src/attnfun/constructions/partition.py"),
    ("how a proof chooses ellipses and node counts (what they give is then proved)", "src/attnfun/certify/nodes.py"),
    ("the temperature of a full-rank head in a plan, and the sets a plan tries", "src/attnfun/plan_tasks.py"),
    ("`cost.rank`, a numerical rank", "src/attnfun/network/head.py"),
    ("margins while embeddings are searched for (those printed are proved)", "src/attnfun/limits/embedding/search.py"),
    ('certificates with status `sampled`, from `compile(accept="sampled")`', "src/attnfun/verbs.py"),
    ("that a traced function is the function that was called (random points)", "src/attnfun/targets/function.py"),
)

OPEN = (
    "that a preorder jumps, or does not, where only comparisons are known: witnesses are about a resolution; that one"
    " is continuous in queries; the cascade in half precision",
    "networks of several layers without labels, and any of them in L^p: evaluated, saved, exported, but not proved",
    "axes of heads without labels that read more than one variable; steps of more than four arguments",
    "MLPs without labels, in L^p, or with several blocks for one coordinate; lower bounds on the units of any MLP",
    "sequence maps whose expressions are not defined on the whole box of their features, or in L^p",
    "relations g(u(x), v(y)) whose u or v do not compile, or with towers of ReLU units: conditional on u and v",
    "relations with kinks past some thousand cells a side, or with more than six variables that do not separate;"
    " towers of more than three variables that do not separate, those of ReLU units past one; proofs of towers in"
    " float32",
    "that a relation is positive semidefinite: a witness against it is proved, its absence proves nothing",
    "kinks in two and more variables, except for partitions and for composed networks",
    "more than four variables, except by partitions and by composed networks",
    "programs that equal their target for a reason not among the rewrites",
    "sums that reach 0 under a root and are no sums of squares; 0/0 of two variables that are not one quotient",
    "that the search for few keys finds the fewest",
    "a proved error of exp in the mathematical library (a hypothesis today)",
    "useful bounds for regressions in context in float32; the lasso where eigenvalues reach 0",
    "reduced-precision and GPU arithmetic",
    "the dimension of a relevance relation between its two ends: from dimension 2 on nothing decides it",
    "neighbours of all points at once by two layers of rank below the dimension and the number of points",
    "triples by one layer of plain heads, without pair tokens: excluded by bits or not known; by two layers, not known",
    "lower bounds on the number of keys: a certificate never says that fewer would not do",
)
