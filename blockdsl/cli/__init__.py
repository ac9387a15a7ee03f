"""The command line: from an ONNX file to a trained one, from a shell.

```sh
blockdsl generate model.onnx --loss cross-entropy --output run
blockdsl train run --data train.npz --validation test.npz --epochs 10 --learning-rate 0.01
blockdsl export run --output-name logits -o trained.onnx
```
"""

from blockdsl.cli import check, generate, info, train  # noqa: F401  (importing them adds the commands)
from blockdsl.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
