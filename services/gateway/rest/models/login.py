"""Signing in to the pages."""

from datetime import datetime

from pydantic import BaseModel


class LoginLink(BaseModel):
    """Opens the pages once, until `expires_at`."""

    url: str
    expires_at: datetime
