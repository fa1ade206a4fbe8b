"""Scale each uploaded image, encode it as WebP, and show it in the content row of its page."""

import os
from io import BytesIO

from PIL import Image, ImageOps

from intake_ledger import Commit, ObjectChange, Unprocessable

UPLOADS, PREFIX = "images/", "web/"
LARGEST = (1_200, 1_200)
"""The largest width and height, in pixels."""


def process(change: ObjectChange) -> Commit:
    """Write the WebP of an image, and let the row of its page name it. The row of a removed image names none.

    The name has the version, so a late worker changes no object that another version is shown by. The row changes in
    the transaction of the ledger's commit, so it names an object that exists, and a late worker cannot change it.
    """
    row = {"TableName": os.environ["CONTENT_TABLE"], "Key": {"page": {"S": change.key.removeprefix(UPLOADS)}}}
    if change.kind == "removed":
        return Commit("removed", transact=[{"Update": row | {"UpdateExpression": "REMOVE image, width, height"}}])
    with change.open() as stream:
        content = stream.read()
    try:
        image = scaled(content)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        # The content is in memory, so another attempt would read the same.
        raise Unprocessable("not an image, or not a whole one") from None
    name = f"{PREFIX}{change.key.removeprefix(UPLOADS)}/{change.version_id}.webp"
    change.output(os.environ["OUTPUT_BUCKET"], name).put(webp(image, change.fence), content_type="image/webp")
    shown = {
        "UpdateExpression": "SET image = :image, width = :width, height = :height",
        "ExpressionAttributeValues": {
            ":image": {"S": name},
            ":width": {"N": str(image.width)},
            ":height": {"N": str(image.height)},
        },
    }
    return Commit(name, transact=[{"Update": row | shown}])


def scaled(content: bytes) -> Image.Image:
    """Return the image in at most the largest size. It is upright as viewers show it: a WebP without EXIF data."""
    image = ImageOps.exif_transpose(Image.open(BytesIO(content))).convert("RGB")
    image.thumbnail(LARGEST)
    return image


def webp(image: Image.Image, fence: int) -> bytes:
    """Return the image as WebP. An output has its fence in the content, so its metadata have it."""
    output = BytesIO()
    image.save(output, "WEBP", xmp=f"<intake:fence xmlns:intake='intake'>{fence}</intake:fence>".encode())
    return output.getvalue()
