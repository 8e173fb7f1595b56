"""The OpenAPI 3.1 document, made from the signatures that also bind requests, so the two cannot differ.

`document` puts it together from the `operations`; `schemas` describes the types, `errors` the error responses.
"""
