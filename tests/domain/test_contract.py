"""The contract's wire forms."""

from domain.contract import IOContract
from domain.kernel import Kernel, KernelType
from domain.request import Request

README_IO = {
    "args": [
        {
            "name": "x",
            "type": "tensor",
            "tensor_spec": {"shape": [1024], "dtype": "float32", "init": {"kind": "randn", "seed": 42}},
            "role": "input",
        },
        {"name": "output", "type": "tensor", "tensor_spec": {"shape": [1024], "dtype": "float32"}, "role": "output"},
        {"name": "n_elements", "type": "int", "value": 1024, "role": "input"},
        {"name": "BLOCK_SIZE", "type": "int", "value": 256, "role": "input", "is_meta": True},
    ],
    "launch": {"grid": {"x": 4}, "num_warps": 4},
}


def test_a_request_survives_its_own_wire_form():
    kernel = Kernel("src", KernelType.TRITON, IOContract.from_wire(README_IO), {"kernel_name": "k"})
    request = Request(kernel=kernel, reference=Kernel("ref", KernelType.TORCH), num_trials=7, timeout=9)
    assert Request.from_wire(request.to_wire()) == request


def test_grid_forms():
    for grid, expected in [
        ({"x": 4}, (4, 1, 1)),
        ([4, 2], (4, 2, 1)),
        (4, (4, 1, 1)),
        ("cdiv(n, 2)", ("cdiv(n, 2)", 1, 1)),
    ]:
        assert IOContract.from_wire({"launch": {"grid": grid}}).launch.grid == expected


def test_outputs_are_the_marked_ones_else_every_tensor():
    io = IOContract.from_wire(README_IO)
    assert io.outputs == (1,)
    unmarked = IOContract.from_wire(
        {"args": [dict(README_IO["args"][0]), README_IO["args"][2], dict(README_IO["args"][0], name="y")]}
    )
    assert unmarked.outputs == (0, 2)


def test_inline_data_decides_shape_and_dtype():
    io = IOContract.from_wire(
        {
            "args": [
                {
                    "name": "x",
                    "type": "tensor",
                    "tensor_spec": {
                        "shape": [1],
                        "dtype": "float32",
                        "data": {"data_b64": "AAA=", "dtype": "int8", "shape": [2]},
                    },
                }
            ]
        }
    )
    spec = io.args[0].tensor_spec
    assert spec is not None and (spec.shape, spec.dtype) == ((2,), "int8")
