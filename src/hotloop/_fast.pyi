from typing import Any

FORM: int
Rows: Any
Sites: Any
gather: Any
encode: Any
decode: Any
Hook: Any
Counts: Any
Entry: Any
Feed: Any
Ticks: Any
making: Any
attach: Any
hold: Any
go_on: Any
