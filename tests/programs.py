"""Models in ONNX's text form: the rows of tables of branches, loops and sequences."""

from onnx import TensorProto, parser

F = "float[2, 3]"
"""What most of the tensors below are."""


class Program:
    """A model in ONNX's text form, and what it is fed."""

    def __init__(
        self,
        name,
        signature,
        text,
        of=("y",),
        order=2,
        opset=17,
        constants="",
        runtime=True,
        **fed,
    ):
        self.name, self.of, self.order, self.fed = name, list(of), order, fed
        self.runtime = runtime
        self.text = (
            f'<ir_version: 8, opset_import: ["" : {opset}]> g {signature} {{ {constants} {text} }}'
        )

    def model(self):
        return parser.parse_model(self.text)

    def feeds(self, rng):
        """Values for all inputs: floats at random where none are given."""
        found = {}
        for info in self.model().graph.input:
            shape = [d.dim_value or 4 for d in info.type.tensor_type.shape.dim]
            drawn = rng.uniform(-1.5, 1.5, shape)
            found[info.name] = self.fed.get(info.name, drawn)
        return found

    @property
    def wrt(self):
        graph = self.model().graph
        return [i.name for i in graph.input if i.type.tensor_type.elem_type == TensorProto.FLOAT]
