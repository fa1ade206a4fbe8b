"""Call a processor, and give it the content of an object.

`lambda_processor` is imported only for a processor that is another Lambda function.
"""
