"""The time between two notifications about one event, as an article measured it on S3.

"AWS S3 Event Notifications have 'probably once' delivery" counted 507,706 notifications. 154 keys were notified two or
three times, and the copies came 62 ms to 22,162 s apart. It gives the range and not the distribution. The demonstration
draws from the range with equal weight for each order of magnitude, and divides by its scale.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

ARTICLE = "https://www.hydrogen18.com/blog/aws-s3-event-notifications-probably-once.html"
SHORTEST_SECONDS, LONGEST_SECONDS = 0.062, 22_162.0
FULL_SCALE, SHORT_SCALE = 300, 2_500
"""A gap of the run is the article's gap divided by this."""


def draw(dice: random.Random, scale: float) -> float:
    """Return a gap in seconds of the run."""
    return math.exp(dice.uniform(math.log(SHORTEST_SECONDS), math.log(LONGEST_SECONDS))) / scale
