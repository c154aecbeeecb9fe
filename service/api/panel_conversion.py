"""Between the API's schemas and the engine, for panels: a question's job, and their description."""

from typing import Literal

from latent.errors import InputError
from latent.stopping import Stop, check_stop
from service.api.model_schemas import CalibrationOut, LimitsOut, ModelOut, PanelMemberOut, PanelOut
from service.api.schemas import SolveRequest
from service.engine.job import Job
from service.engine.panel_job import PanelJob
from service.models import ServedPanel

__all__ = ["panel_job", "panel_out", "stop_of"]


def stop_of(body: SolveRequest) -> Stop | None:
    """The stop that a request asks for."""
    if body.stop is None:
        return None
    if body.stop.confidence is not None:
        return Stop("confidence", body.stop.confidence)
    assert body.stop.certainty is not None
    return Stop("certainty", body.stop.certainty)


def panel_job(
    served: ServedPanel, body: SolveRequest, question: str, request_id: str, budget: int, seed: int
) -> PanelJob:
    """Make the job of a question to a panel, and a job for each of its members."""
    if body.sampler is not None:
        raise InputError(
            "the members of a panel have their own samplers; leave sampler out", param="sampler"
        )
    vote = body.vote or "majority"
    served.check_vote(vote)
    stop = stop_of(body)
    is_calibrated = served.panel.calibration(vote) is not None
    check_stop(served.name, vote, stop, body.abstain_below, is_calibrated=is_calibrated)
    panel, places = served.panel, served.panel.places(budget)
    members = tuple(
        Job(
            request_id=request_id,
            kind="solve",
            model=model.name,
            sampler=str(member.sampler),
            thoughts=model.format.thoughts,
            question=question,
            seed=seed,
            indices=tuple(place.index for place in places if place.member == number),
            budget=budget,
            vote=vote,
            wants_tokens="tokens" in body.include,
        )
        for number, (member, model) in enumerate(zip(panel.members, served.models, strict=True))
    )
    return PanelJob(
        request_id=request_id,
        kind="solve",
        model=panel.name,
        sampler=",".join(panel.labels),
        thoughts=0,  # each member has its own
        question=question,
        seed=seed,
        indices=tuple(range(len(places))),
        budget=budget,
        vote=vote,
        stop=stop,
        abstain_below=body.abstain_below,
        familiarity=panel.familiarity(question),
        deadline_ms=body.deadline_ms,
        is_streamed=body.stream,
        panel=panel,
        places=places,
        members=members,
    )


def panel_out(
    served: ServedPanel, limits: LimitsOut, reproducible: Literal["bits", "tokens"] | None
) -> ModelOut:
    """Describe a panel for /v1/models."""
    panel = served.panel
    return ModelOut(
        id=served.name,
        object="model",
        created=0,
        owned_by="gts",
        kind="panel",
        thoughts=0,
        width=0,
        fingerprint=served.fingerprint,
        reproducible=reproducible,
        dtype=None,
        results={},
        samplers=[],
        default_sampler=None,
        votes=list(served.votes),
        default_vote="majority",
        calibrations=[
            CalibrationOut(
                sampler="panel",
                vote=one.vote,
                ece=one.ece,
                questions=one.questions,
                data=one.data,
                budgets=one.budgets,
            )
            for one in panel.calibrations
        ],
        examples=[],
        limits=limits,
        panel=PanelOut(
            members=[
                PanelMemberOut(model=each.model, sampler=str(each.sampler), share=each.share)
                for each in panel.members
            ],
            split=panel.split,
            sure=panel.sure,
        ),
    )
