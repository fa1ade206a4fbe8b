"""The processor: it keeps a grey copy of each picture in the output bucket."""

import os
from io import BytesIO

from PIL import Image, ImageOps

from intake_ledger import ObjectChange, Unprocessable

PREFIX = "grey/"


def process(change: ObjectChange) -> None:
    """Write the grey copy of a picture, or remove the copy of a deleted picture."""
    output = change.output(os.environ["OUTPUT_BUCKET"], PREFIX + change.key)
    if change.kind == "removed":
        output.remove()
        return
    with change.open() as stream:
        content = stream.read()
    try:
        picture = greyscale(content)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        # The content is in memory, so another attempt would read the same.
        raise Unprocessable("not a picture, or not a whole one") from None
    output.put(picture, content_type="image/png")


def greyscale(content: bytes) -> bytes:
    """Return the picture without its colours, as a PNG. It is upright as viewers show it: a PNG has no orientation."""
    output = BytesIO()
    ImageOps.exif_transpose(Image.open(BytesIO(content))).convert("L").save(output, "PNG")
    return output.getvalue()
