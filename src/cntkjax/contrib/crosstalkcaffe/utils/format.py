"""Names and files of configurations."""

from __future__ import annotations

import json
import os
import re
from typing import Any


def camel_to_snake(camel_string: str) -> str:
    """A name in CamelCase converted to snake_case.

    >>> [camel_to_snake(name) for name in ("InnerProduct", "CNTKModelPath", "LRN", "ReLU")]
    ['inner_product', 'cntk_model_path', 'lrn', 're_lu']
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", camel_string).lower()


def json_parser(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file. Errors: OSError if it cannot be read, ValueError if it is no JSON."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)
