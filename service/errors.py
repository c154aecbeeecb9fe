"""The errors that the service answers with: one JSON shape, each class with its HTTP status."""

from typing import Any

from pydantic import BaseModel, Field

from latent.errors import GtsError, NotFoundError

__all__ = [
    "DeadlineError",
    "DrainingError",
    "ErrorBody",
    "ErrorResponse",
    "NotReadyError",
    "OverloadedError",
    "ServiceError",
    "WorkerError",
    "as_service_error",
    "invalid_field",
    "invalid_request",
]


class ErrorBody(BaseModel):
    """What went wrong, for people and for programs."""

    type: str = Field(description="invalid_request, overloaded, unavailable or internal.")
    message: str
    param: str | None = Field(None, description="The field that is wrong, where one is.")
    code: str = Field(description="Which error exactly; stable.")


class ErrorResponse(BaseModel):
    """The body of every answer that is not a 2xx."""

    error: ErrorBody


class ServiceError(Exception):
    """An error with its HTTP status; subclasses set the defaults."""

    status, type, code = 500, "internal", "internal"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or self.status
        self.type = type or self.type
        self.code = code or self.code
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        error = ErrorBody(type=self.type, message=str(self), param=self.param, code=self.code)
        return ErrorResponse(error=error).model_dump()

    def headers(self) -> dict[str, str]:
        """The response's headers besides the usual ones."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == 401 else headers


class OverloadedError(ServiceError):
    """Too many lanes wait already."""

    status, type, code = 429, "overloaded", "queue_full"


class NotReadyError(ServiceError):
    """No worker is up."""

    status, type, code = 503, "unavailable", "not_ready"


class DrainingError(ServiceError):
    """The server is shutting down."""

    status, type, code = 503, "unavailable", "draining"


class DeadlineError(ServiceError):
    """The deadline passed before any trajectory was finished."""

    status, type, code = 504, "unavailable", "deadline"


class WorkerError(ServiceError):
    """The device failed on this request; details stay in the log."""

    code = "worker_failed"


def invalid_request(message: str, status: int, code: str, param: str | None = None) -> ServiceError:
    """An error that the client can put right."""
    return ServiceError(message, status=status, type="invalid_request", code=code, param=param)


def invalid_field(message: str, param: str | None) -> ServiceError:
    """A 422 that names the field."""
    return invalid_request(message, 422, "invalid_field", param)


def as_service_error(error: GtsError) -> ServiceError:
    """Map a domain error to its HTTP status."""
    if isinstance(error, NotFoundError) and error.param == "model":
        return invalid_request(str(error), 404, "model_not_found", "model")
    return invalid_field(str(error), error.param)
