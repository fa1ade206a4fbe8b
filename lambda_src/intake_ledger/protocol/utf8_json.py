"""Write JSON in the fewest bytes that SQS, Lambda and Step Functions take: they count bytes of UTF-8."""

import json
import re
from typing import Any

_REFUSED = re.compile("[\ud800-\udfff\ufffe\uffff]")
"""Characters of a JSON text that SQS or UTF-8 refuses. `json` escapes control characters itself:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html."""


def json_text(value: Any, *, sort_keys: bool = False) -> str:
    """The value as JSON without spaces. A character that SQS refuses becomes an escape sequence.

    Raises:
        TypeError: JSON has no such value. Also ValueError, and RecursionError if it is too deep.

    """
    text = json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False)
    return text if text.isascii() else _REFUSED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
