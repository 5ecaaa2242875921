"""Codes of flags, each with its meaning and what to do about it.

Clients and the service itself match codes, never sentences.
"""

from __future__ import annotations

from enum import StrEnum

TIMEOUT_NEAR = "the timeout was near"
"""The words about whatever the request's `timeout` prevented."""


class FlagCode(StrEnum):
    """Every code, with its meaning and what to do about it; docs/errors.md is made of these."""

    meaning: str
    advice: str

    def __new__(cls, code: str, meaning: str = "", advice: str = "") -> FlagCode:
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.advice = advice
        return member

    # The time: its meaning.
    MEAN_OF_CASES = (
        "mean_of_cases",
        "The job has several cases: its time and its speed-up are geometric means over them.",
        "Read `cases` for each one.",
    )
    UPPER_BOUND = (
        "upper_bound",
        "A call is too short for a window to resolve: its time is an upper bound.",
        "Give the kernel more work per call.",
    )
    SINGLE_CALL_SLOWER = (
        "single_call_slower",
        "A call by itself takes longer than a call in a window of many. The longer time is reported.",
        "Do the work of each call within that call.",
    )
    FASTER_THAN_LAUNCHES = (
        "faster_than_launches",
        "A call in a window of many takes less time than its launches need. The time of a single call is reported.",
        "Do the work of each call within that call.",
    )
    DEFERRED_OUTPUTS_SLOWER = (
        "deferred_outputs_slower",
        "A call takes longer when the referee requests outputs only after the last call. The longer time is reported.",
        "Return tensors that hold their values when the call ends.",
    )
    DEFERRED_OUTPUTS_DIFFER = (
        "deferred_outputs_differ",
        "The outputs differ when the referee requests them only after the last call and overwrites the inputs.",
        "Return tensors that hold their values when the call ends.",
    )
    HOST_JITTER = (
        "host_jitter",
        "Two measurements differ, and the host may be the cause. The candidate's longer time is reported, and the "
        "speed-up counts the reference's shorter one.",
        "Submit the kernel again while the host is idle.",
    )
    WORK_BEFORE_CLOCK = (
        "work_before_clock",
        "Preparing windows took longer next to the kernel's process than next to an idle one. "
        "The difference is added to the time.",
        "Start no work before a call, and leave none on the device after it.",
    )
    EVENTS_MISMATCH = (
        "events_mismatch",
        "The kernel's own event times do not fit the referee's clock. The clock alone gives the time.",
        "Nothing on a busy host; else do not touch CUDA events or streams that the kernel did not create.",
    )
    FEW_CALLS_PER_WINDOW = (
        "few_calls_per_window",
        "The kernel allows only a few short calls per window, so a window's error is a large part of its time.",
        "Remove host synchronisation from the call, or raise `timeout`.",
    )
    CPU_TIME_INDICATIVE = (
        "cpu_time_indicative",
        "The kernel was timed on a CPU, where it can run beside the clock: the time is only indicative.",
        "Submit to a worker with a GPU for a time to compare; the verdict holds.",
    )
    INTERPRETED = (
        "interpreted",
        "Triton's interpreter ran the kernel on the CPU: the time says nothing about a GPU.",
        "Submit to a worker with a GPU.",
    )
    GPU_BUILD_INCOMPLETE = (
        "gpu_build_incomplete",
        "The kernel passed on the CPU. Its build for the GPU of BUILD_FOR ended before all was compiled.",
        "Correct what the message names: a branch that only a GPU takes may fail there.",
    )
    SHARED_HARDWARE_QUEUE = (
        "shared_hardware_queue",
        "The kernel's streams shared one hardware queue: with separate queues it may be faster.",
        "Name the streams in the source, or raise `timeout`.",
    )
    LAUNCH_COST_UNKNOWN = (
        "launch_cost_unknown",
        "The cost of a launch in this process could not be measured: a call may be off by 0.2 µs.",
        "Submit the kernel again.",
    )
    # The time: disturbances.
    WINDOWS_EXCLUDED = (
        "windows_excluded",
        "Something outside disturbed some windows, and the referee excluded them.",
        "Nothing, unless many are excluded: then find out what else uses the host or the GPU.",
    )
    WINDOWS_RETAKEN = (
        "windows_retaken",
        "The referee took some windows again, because of the GPU's clocks or a slow preparation.",
        "Nothing.",
    )
    WINDOWS_THROTTLED = (
        "windows_throttled",
        "The GPU stayed throttled, so its windows were kept: the kernel may be faster.",
        "Cool the GPU or raise its power limit, and submit again.",
    )
    MEMORY_TAKEN_IN_TURNS = (
        "memory_taken_in_turns",
        "The GPU's free memory did not hold all runners: between windows one gave up its memory for another. "
        "That changes times, so they are not compared.",
        "Free the GPU's memory, make the inputs smaller, or send the job to a larger GPU.",
    )
    OTHER_GPU_PROCESSES = (
        "other_gpu_processes",
        "Processes outside this service had memory on the GPU and may have slowed the kernel.",
        "Stop them, and submit again.",
    )
    GPU_DISTURBED = (
        "gpu_disturbed",
        "Null windows took far longer than usual on this GPU, without the kernel's process: something else slowed it.",
        "Find out what else uses the GPU, and submit again.",
    )
    GPU_ERROR = (
        "gpu_error",
        "The driver reported an error of the GPU (Xid) during the job.",
        "Look up the Xid; the operator should check the GPU if it repeats.",
    )
    NULL_WINDOWS_SLOWED = (
        "null_windows_slowed",
        "Null windows took longer next to the kernel's process than without it: only the latter is subtracted.",
        "Leave no work or memory traffic on the device outside the calls.",
    )
    NULL_WINDOWS_PREPARED_LATE = (
        "null_windows_prepared_late",
        "Preparing null windows took longer next to the kernel's process than without it. The hidden time is added.",
        "Leave no work on the device outside the calls.",
    )
    CHECK_WINDOWS_SLOWED = (
        "check_windows_slowed",
        "The null windows of a check took longer next to the kernel's process than without it. "
        "The hidden time is added.",
        "Leave no work on the device outside the calls.",
    )
    REFERENCE_SLOWED = (
        "reference_slowed",
        "The reference took longer next to the kernel's process than without it, so the speed-up is unknown.",
        "Leave no work or memory traffic on the device outside the calls.",
    )
    REFERENCE_DISTURBED = (
        "reference_disturbed",
        "Most windows of the reference took longer than without the kernel's process: the speed-up is unknown.",
        "Find out what else uses the GPU, and submit again.",
    )
    REFERENCE_NOT_RERUN = (
        "reference_not_rerun",
        "The reference could not run again without the kernel's process, so the speed-up is unknown.",
        "Submit the job again.",
    )
    CASE_NOT_RERUN = (
        "case_not_rerun",
        "The case is too large to run again without the kernel's process, which may have slowed its reference.",
        "Send this case by itself to have its time checked.",
    )
    # The time: checks that `timeout` cut short.
    STOPPED_BY_TIMEOUT = (
        "stopped_by_timeout",
        "The timing ended before its criterion, because the timeout was near.",
        "Raise `timeout`.",
    )
    REFERENCE_RERUN_TIMEOUT = (
        "reference_rerun_timeout",
        "The reference did not run again by itself, because the timeout was near, so the speed-up is unknown.",
        "Raise `timeout`.",
    )
    DEFERRED_OUTPUTS_UNTESTED = (
        "deferred_outputs_untested",
        "No window requested its outputs late, because the timeout was near.",
        "Raise `timeout`.",
    )
    SINGLE_CALL_UNTESTED = (
        "single_call_untested",
        "No call was timed by itself, because the timeout was near.",
        "Raise `timeout`.",
    )
    FEWER_PROCESSES = (
        "fewer_processes",
        "The kernel was judged in fewer processes than requested, because the timeout was near.",
        "Raise `timeout`.",
    )
    CONSTANT_WEIGHTS_UNTESTED = (
        "constant_weights_untested",
        "Weights with one value were not tried with other values, because the timeout was near.",
        "Raise `timeout`.",
    )
    # The time: physical limits.
    TOO_FAST_FOR_MEMORY = (
        "too_fast_for_memory",
        "The time is too short for the bytes that each call writes on this GPU.",
        "Look for work that a call skips; do not trust the time.",
    )
    TOO_FAST_FOR_ARITHMETIC = (
        "too_fast_for_arithmetic",
        "The time is too short for an eighth of the counted operations on this GPU.",
        "Check that the kernel needs far less arithmetic; else do not trust the time.",
    )
    OPERATIONS_NOT_COUNTED = (
        "operations_not_counted",
        "The operations could not be counted, so the time was not checked against them.",
        "Read the reason in the message; submit again if it was a timeout.",
    )
    GPU_RATES_UNKNOWN = (
        "gpu_rates_unknown",
        "The GPU's peak rates could not be measured, so no time was checked against them.",
        "The operator reads the worker's log.",
    )
    # The kernel: its work and its outputs.
    OUTPUT_IS_INPUT_VIEW = (
        "output_is_input_view",
        "The kernel returns a view of an input where the reference makes a new tensor.",
        "Write the output into a tensor of its own.",
    )
    INPUTS_CHANGED_DIFFERENTLY = (
        "inputs_changed_differently",
        "The reference changes its inputs in place, and the kernel leaves other content there.",
        "Let the reference return the changed tensor too, if the change is wanted.",
    )
    INPUT_LAYOUT_COPIED = (
        "input_layout_copied",
        "The contract asks for another memory layout than the reference gets. No time includes that copy.",
        "Take the input as the reference takes it, and copy within the call.",
    )
    GRADIENTS_NOT_COMPARED = (
        "gradients_not_compared",
        "The kernel lacks parameters that have a gradient in the reference, so neither side computes those gradients.",
        "Give its parameters the reference's names and shapes.",
    )
    ROUNDING_DECIDES = (
        "rounding_decides",
        "A few elements differ, but the reference gives them too for inputs that differ by rounding. "
        "They count as right.",
        "Nothing.",
    )
    RIGHT_BY_FLOAT64 = (
        "right_by_float64",
        "A few elements are beyond the tolerance, but as near to a float64 run as their dtype allows. "
        "They count as right.",
        "Nothing.",
    )
    WRONG_BY_FLOAT64 = (
        "wrong_by_float64",
        "A few elements are beyond the tolerance, and a float64 run shows that the kernel errs.",
        "Accumulate in float32, or a wider dtype.",
    )
    REFERENCE_LESS_EXACT = (
        "reference_less_exact",
        "The reference is off a float64 run by more than the tolerance, and the kernel is as near to it as its dtype "
        "allows. The elements count as right.",
        "Accumulate in float32 in the reference.",
    )
    FLOAT64_UNAVAILABLE = (
        "float64_unavailable",
        "A few elements are beyond the tolerance, and no float64 run can judge them. They count as wrong.",
        "Write the reference in PyTorch operators that run in float64, or raise `atol` and `rtol`.",
    )
    LOWER_PRECISION = (
        "lower_precision",
        "The errors look like those of a lower precision than the output's dtype.",
        "Compute in the dtype of the reference, if its precision is wanted.",
    )
    UNEXPLAINED_ERROR = (
        "unexplained_error",
        "The error against float64 is larger than rounding explains.",
        "If the kernel passed, ask for a smaller `atol` and `rtol` to see where the outputs differ.",
    )
    OUTPUT_LAYOUT_DIFFERS = (
        "output_layout_differs",
        "An output has other strides than the reference's.",
        "Call `.contiguous()` if the reader needs that layout.",
    )
    WORK_ON_OTHER_STREAMS = (
        "work_on_other_streams",
        "A profiled call ran work on other streams that began before or ended after the call's own.",
        "Wait for it on the current stream.",
    )
    KERNELS_NOT_FROM_SOURCE = (
        "kernels_not_from_source",
        "Nearly all device time of a profiled call is in kernels that the source does not define.",
        "Write the kernel itself, if that is the task.",
    )
    EXTENSION_NOT_BUILT = (
        "extension_not_built",
        "The build of an extension failed, and the source caught the error: something else may have been called.",
        "Correct the build; `output` has its errors if the source prints them.",
    )
    SANITIZER_ERRORS = (
        "sanitizer_errors",
        "NVIDIA compute-sanitizer found errors in the kernel.",
        "Mend them: they count as much as a wrong output.",
    )
    NOT_DETERMINISTIC = (
        "not_deterministic",
        "Calls on the same inputs gave an output with other bits.",
        "Sum in a fixed order: without atomic adds on floating-point numbers, and with one configuration.",
    )
    BATCH_VARIANT = (
        "batch_variant",
        "A row of the outputs has other bits beside other rows, or in a batch of another size.",
        "Use tiles and a split of the reduction that do not depend on the batch's size.",
    )
    DETERMINISM_UNTESTED = (
        "determinism_untested",
        "The request asked for the determinism check, and it could not run.",
        "Read the message.",
    )
    # The task: chances for a wrong kernel.
    TRIVIAL_OUTPUT_PASSES = (
        "trivial_output_passes",
        "An output that takes no work, such as all zeros, would pass at this tolerance.",
        "Lower `atol` and `rtol`, or change the reference's inputs.",
    )
    FIXED_OUTPUTS_PASS = (
        "fixed_outputs_pass",
        "Outputs fixed beforehand pass in every call that was tried: the speed-up says nothing.",
        "Leave the problem out, or change the reference or its inputs.",
    )
    OUTPUT_EMPTY = (
        "output_empty",
        "An output has no elements: every output is right.",
        "Change the reference or its inputs.",
    )
    INPUTS_REUSED = (
        "inputs_reused",
        "Calls got inputs a second time, because drawing takes long. A kernel that stores outputs would gain time.",
        "Make `get_inputs()` faster, or use plain random inputs.",
    )
    INPUTS_NOT_RANDOM = (
        "inputs_not_random",
        "All drawn input sets are equal. A kernel that stores outputs would gain time.",
        "Draw random inputs in `get_inputs()`.",
    )
    INPUTS_REPLAYED = (
        "inputs_replayed",
        "The request named the seed, so the inputs were known beforehand.",
        "Use the result to find a bug, not to rank kernels.",
    )
    CHECKS_SKIPPED = (
        "checks_skipped",
        "The budget skipped checks.",
        "Choose the budget `default` or `precise` to run them.",
    )
    RESULT_REUSED = (
        "result_reused",
        "Nothing ran for this job: it got the result of an earlier job with the same work.",
        "Omit `reuse` to judge the kernel again.",
    )
    # Reasons why a distribution did not count: `inputs.distributions`.
    DISTRIBUTION_SKIPPED = (
        "distribution_skipped",
        "The budget or the job left this distribution out.",
        "Choose the budget `default` or `precise`.",
    )
    DISTRIBUTION_TIMEOUT = (
        "distribution_timeout",
        "This distribution was not tried, because the timeout was near.",
        "Raise `timeout`.",
    )
    DISTRIBUTION_TIME_LIMIT = (
        "distribution_time_limit",
        "The earlier distributions used up the time for these checks.",
        "Nothing; a faster reference leaves more time.",
    )
    DISTRIBUTION_KERNEL_FAILED = (
        "distribution_kernel_failed",
        "The kernel was wrong or failed, here or on an earlier distribution.",
        "Read the message; mend the kernel if such inputs matter.",
    )
    DISTRIBUTION_INPUTS_UNCHANGED = (
        "distribution_inputs_unchanged",
        "No input looks like plain random numbers, so none was changed.",
        "Nothing.",
    )
    DISTRIBUTION_INPUTS_RELATED = (
        "distribution_inputs_related",
        "The inputs seem to be computed from each other, so a difference says nothing about the kernel.",
        "Nothing.",
    )
    DISTRIBUTION_INPUTS_TOO_LARGE = (
        "distribution_inputs_too_large",
        "The inputs are too large to be changed in memory.",
        "Nothing; smaller inputs can be tried.",
    )
    DISTRIBUTION_NO_INPUTS = (
        "distribution_no_inputs",
        "The reference or the kernel drew no further inputs.",
        "Read the message; mend `get_inputs()`.",
    )
    DISTRIBUTION_REFERENCE_UNSOUND = (
        "distribution_reference_unsound",
        "The reference fails on this distribution, or its outputs there are no evidence.",
        "Nothing; or make the reference numerically stable there.",
    )
    DISTRIBUTION_NO_FLOAT64 = (
        "distribution_no_float64",
        "Elements differ, but without a float64 run of the reference that is no evidence.",
        "Write the reference in PyTorch operators that run in float64.",
    )
    ROBUSTNESS_FAILED = (
        "robustness_failed",
        "The kernel fails on inputs that the task never draws, where the reference is right. The verdict stands.",
        'Read `comparison.robustness`; mend the kernel, or say `strictness: "robust"` to refuse such kernels.',
    )
    # The outcome of other values for weights: `inputs.weight_findings`.
    WEIGHTS_AGREE = (
        "weights_agree",
        "Kernel and reference agree with other values for the weights that have one value.",
        "Nothing.",
    )
    WEIGHTS_COPIED = (
        "weights_copied",
        "The kernel copied weights when it was constructed, and agrees when constructed with other values.",
        "Nothing.",
    )
    WEIGHTS_IGNORED = (
        "weights_ignored",
        "The kernel does not use some weights. The verdict is `wrong_result`.",
        "Use the weights.",
    )
    WEIGHTS_USED_DIFFERENTLY = (
        "weights_used_differently",
        "The kernel uses some weights differently from the reference. The verdict is `wrong_result`.",
        "Use each weight as the reference does.",
    )
    WEIGHTS_INCONCLUSIVE = (
        "weights_inconclusive",
        "The kernel disagrees with other values for its weights, which may be a copy. There is no verdict.",
        "Read the weights in each call.",
    )
    WEIGHTS_UNTESTED = (
        "weights_untested",
        "Weights with one value could not be tried with other values.",
        "Give the kernel weights of the reference's names, shapes and dtypes.",
    )
    BUFFERS_NOT_UPDATED = (
        "buffers_not_updated",
        "Calls of the reference change buffers, such as running statistics, and the kernel's calls do not.",
        "Update them in the call, if that is part of the task.",
    )
    BUFFERS_UNREADABLE = (
        "buffers_unreadable",
        "The buffers could not be read after the calls.",
        "Read the message; mend the side that failed.",
    )


CUT_SHORT = frozenset(
    {
        FlagCode.FEW_CALLS_PER_WINDOW,
        FlagCode.STOPPED_BY_TIMEOUT,
        FlagCode.REFERENCE_RERUN_TIMEOUT,
        FlagCode.DEFERRED_OUTPUTS_UNTESTED,
        FlagCode.SINGLE_CALL_UNTESTED,
        FlagCode.FEWER_PROCESSES,
        FlagCode.CONSTANT_WEIGHTS_UNTESTED,
        FlagCode.DISTRIBUTION_TIMEOUT,
        FlagCode.DETERMINISM_UNTESTED,
    }
)
"""Codes of what the request's `timeout` prevented: the same request with more time may give more."""

SPEEDUP_UNKNOWN = frozenset(
    {
        FlagCode.MEMORY_TAKEN_IN_TURNS,
        FlagCode.REFERENCE_SLOWED,
        FlagCode.REFERENCE_DISTURBED,
        FlagCode.REFERENCE_NOT_RERUN,
        FlagCode.REFERENCE_RERUN_TIMEOUT,
    }
)
"""Codes beside which there is no speed-up."""
