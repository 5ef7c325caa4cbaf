from typing import Any

Rows: Any
Sites: Any
Hook: Any
begin: Any
Counts: Any
Entry: Any
Feed: Any
