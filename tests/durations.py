"""Which tests `make test` leaves to `make test-long`: those of the files that take most of the time.

Measured on two cores, 2026-11-27: the files below take four fifths of the time of all tests that need no GPU.
"""

from __future__ import annotations

_LONG = """
api/auth/test_key_file api/http/test_json_body api/openapi/test_documentation api/test_batch api/test_fuzz
api/test_other_sites api/test_refused api/test_server api/test_slow_clients backends/binary/test_cubin
backends/dry_run/test_child backends/dry_run/test_pretended_triton backends/extensions/test_compiler_driver
backends/extensions/test_jit_build backends/languages/test_programs backends/python/test_cuda_source
backends/python/test_torch_cuda backends/test_code_listings benchmarks/test_extension_stream benchmarks/test_jobs
chaos/test_campaign
client/test_artifacts client/test_cli client/test_confirm client/test_device_metrics client/test_documents
client/test_events client/test_notebook client/test_mcp client/test_mcp_jobs client/test_original_payloads
client/test_retries client/test_rewards client/test_service client/test_suite_command
client/test_suites client/test_task_pages client/test_terminal docs/test_blocks docs/test_hashes docs/test_shell_blocks
exploits/test_exploits frameworks/test_openenv frameworks/test_verifiers fuzz/test_campaign honest/test_honest
mutants/test_mutants profiling/results/test_multi_process profiling/results/test_told_apart
profiling/window/test_timed_window rights/test_rights sandbox/runner/test_tool_entry
sandbox/isolation/test_clean_env sandbox/supervisor/test_memory_accounting sandbox/test_escapes
sandbox/test_inside stack/test_drain
stack/test_keyed_stack stack/test_serve stack/test_supervisor stack/test_workers
tasks/builds/test_folder_digest tasks/correctness/test_distribution_check tasks/correctness/test_input_source
tasks/correctness/test_determinism_check tasks/correctness/test_float64_check
tasks/correctness/test_input_structure tasks/evaluation/test_fixed_outputs tasks/evaluation/test_products
tasks/runtime/test_build_for tasks/runtime/test_used_candidate tasks/runtime/test_warm_reference
tasks/timing/test_cold_reference tasks/evaluation/test_gradients
tasks/correctness/test_named_outputs tasks/correctness/test_output_forms tasks/correctness/test_weight_sync
tasks/diagnostics/test_code_listings tasks/diagnostics/test_ncu_stage
tasks/diagnostics/test_post_timing_checks tasks/diagnostics/test_tool_run tasks/evaluation/test_pipeline
tasks/evaluation/test_baselines tasks/evaluation/test_runner_messages tasks/node/test_broker_tls
tasks/prebuild/test_job_builds
tasks/runtime/test_build_stage tasks/runtime/test_deferred_teardown
tasks/runtime/test_memory_between_jobs tasks/timing/test_consistency_checks tasks/worker/test_lifecycle
validation/compare/test_comparison
"""
LONG = tuple(f"tests/{name}.py" for name in _LONG.split())
"""Files of tests that take 15 s or more together, or 8 s and more for a handful of tests."""

KEPT = (
    "tests/api/test_server.py::test_submit_and_wait",
    "tests/api/test_server.py::test_a_stop_answers_who_waits",
    "tests/backends/extensions/test_jit_build.py::test_cuda",
    "tests/backends/python/test_cuda_source.py::test_the_contracts_pointers",
    "tests/backends/python/test_torch_cuda.py::test_a_comment_that_begins",
    "tests/client/test_cli.py::test_ctrl_c",
    "tests/rights/test_rights.py::test_a_process_has_those_rights_and_no_others",
    "tests/rights/test_rights.py::test_a_whole_job_has_the_verdict_that_is_right_for_it[compose",
    "tests/stack/test_serve.py::test_ctrl_c_before",
    "tests/tasks/correctness/test_determinism_check.py::test_the_same_bits",
    "tests/tasks/evaluation/test_gradients.py::test_an_honest_backward_passes[autograd.Function]",
    "tests/tasks/evaluation/test_gradients.py::test_a_wrong_backward_is_wrong[a term is missing]",
    "tests/tasks/correctness/test_input_structure.py::test_a_kernel_may_rely_on_what_all_sets_share[a lower",
    "tests/tasks/evaluation/test_pipeline.py::test_a_right_candidate",
    "tests/tasks/evaluation/test_pipeline.py::test_a_wrong_candidate",
    "tests/tasks/evaluation/test_pipeline.py::test_stages_come_in_order",
    "tests/tasks/worker/test_lifecycle.py::test_a_job_is_judged",
    "tests/validation/compare/test_comparison.py::test_default",
    "tests/validation/compare/test_comparison.py::test_floats",
    "tests/validation/compare/test_comparison.py::test_outputs",
    "tests/validation/compare/test_comparison.py::test_what_is_not_finite",
)
"""Beginnings of the ids of tests in these files that `make test` runs nevertheless: one of each real part."""


def is_long(node_id: str) -> bool:
    """Whether only `make test-long` and `make test-all` run that test."""
    return node_id.partition("::")[0] in LONG and not node_id.startswith(KEPT)
