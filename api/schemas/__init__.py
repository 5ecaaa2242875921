"""The shapes of HTTP bodies: requests validated in full at the door, answers described for the OpenAPI document."""
