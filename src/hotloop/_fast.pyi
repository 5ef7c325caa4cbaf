from typing import Any

Rows: Any
Sites: Any
