//! `GET /v1/visits/live`: visits while they happen, as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_core::visit::class::Class;
use shortlink_service::live::{Full, Listener, LiveFilter, LiveId, Told};
use vocabulary::Code;

use super::app::SharedApp;
use super::auth::{Admission, MayListen};
use super::operation::parameter::{parameters, string};
use super::operation::{events_of, operations};
use super::problem::Problem;
use super::query::{Asked, CLASS, OF_CODE, Query, query};
use super::visits::{VisitBody, check_code};

/// The silence after which a comment is sent: proxies close idle connections.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The interval at which the listener's key is checked again.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The delay before a client reconnects, short enough that stored visits are not trimmed meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// Disables nginx's buffering of the response.
const UNBUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

parameters! {
    LAST_EVENT_ID: header "Last-Event-ID", "LastEventId",
        "Id of the last event that the client has received. Later events are sent first.", string;
    DOMAIN: query "domain", "Domain", "Only visits of this short domain.",
        |_| json!({ "type": "string", "minLength": 1 });
}

query! {
    /// The filter of the feed.
    LiveQuery {
        class: Class = CLASS,
        code: Code = OF_CODE,
        domain: String = DOMAIN,
    }
}

operations! {
    get "/v1/visits/live", "listenToVisits", "Streams visits live", listen {
        .text(
            "Server-sent events, whose data are JSON. `begun` (with an id): visits are reported from \
             now on. `visit` (with an id): a visit. `sampled`: number of visits omitted because there \
             were more than `visits.live_per_s`. `lost`: number of visits omitted because the client \
             reads too slowly. `interrupted` and `resumed`: Redis is unavailable, and available again. \
             `gap`: visits after `Last-Event-ID` may be missing. `end`: the key is no longer allowed \
             to listen, or the service stops.",
        )
        .takes(&[LAST_EVENT_ID]).takes(LiveQuery::PARAMETERS)
        .answer(200, "The events.", [events_of::<LiveData>()]).with(["Cache-Control"])
        .problems([bad_id(), switched_off()])
    }
}

/// Data by event: of `visit`; of `sampled` and `lost`; of `end`; of all others.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum LiveData {
    Visit(Box<VisitBody>),
    Count(CountBody),
    End(EndBody),
    Nothing(NothingBody),
}

/// `GET /v1/visits/live`
async fn listen(
    State(app): State<SharedApp>,
    MayListen(admission): MayListen,
    headers: HeaderMap,
    Asked(asked): Asked<LiveQuery>,
) -> Result<impl IntoResponse, Problem> {
    if asked.domain.as_deref() == Some("") {
        return Err(Problem::query("domain must be a short domain."));
    }
    check_code(&app, admission.caller(), asked.code.as_ref()).await?;
    let filter = LiveFilter {
        class: asked.class,
        code: asked.code,
        host: asked.domain,
    };
    let after = read_last_event_id(&headers)?;
    let Some(live) = &app.live else {
        return Err(switched_off());
    };
    let listener = live.listen(&admission.caller().key().id, filter, after);
    let listener = listener.map_err(|full| {
        Problem::unavailable(match full {
            Full::All => "All places of the live feed are taken (visits.live_listeners).",
            Full::OfKey => {
                "All places of this API key in the live feed are taken (visits.live_listeners_per_key)."
            }
        })
    })?;
    let feed = Feed {
        listener,
        until_locked_out: Box::pin(until_locked_out(admission, Arc::clone(&app))),
        is_new: true,
    };
    let events = stream::unfold(Some(feed), async |feed| {
        let (event, feed) = feed?.step().await;
        Some((Ok::<_, Infallible>(event), feed))
    });
    let heartbeat = KeepAlive::new().interval(HEARTBEAT).text("alive");
    Ok(([UNBUFFERED], Sse::new(events).keep_alive(heartbeat)))
}

fn read_last_event_id(headers: &HeaderMap) -> Result<Option<LiveId>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    match value.to_str() {
        // A browser sends this before it has received a visit.
        Ok("") => Ok(None),
        text => {
            let id = text.ok().and_then(LiveId::parse);
            id.map(Some).ok_or_else(bad_id)
        }
    }
}

fn bad_id() -> Problem {
    Problem::malformed("The header Last-Event-ID must be the id of an event of this feed.")
}

fn switched_off() -> Problem {
    Problem::not_found("The live feed is switched off (visits.live_listeners).")
}

/// A feed that is open.
struct Feed {
    listener: Listener,
    /// Runs beside the feed, so that a slow database does not delay it.
    until_locked_out: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_new: bool,
}

/// Completes when the listener's key no longer opens the feed.
async fn until_locked_out(admission: Admission, app: SharedApp) {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if !admission.still_holds(&app).await {
            return;
        }
    }
}

/// Number of visits that were omitted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LiveCount")]
struct CountBody {
    visits: u64,
}

/// Reason for the end of the feed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LiveEnd")]
struct EndBody {
    reason: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LiveNothing")]
struct NothingBody {}

impl Feed {
    /// Waits for the next event; returns no feed with the last one.
    async fn step(mut self) -> (Event, Option<Self>) {
        if std::mem::take(&mut self.is_new) {
            return (Event::default().retry(RETRY), Some(self));
        }
        tokio::select! {
            // Also when visits never cease.
            biased;
            () = &mut self.until_locked_out => (end("key"), None),
            told = self.listener.next() => match told {
                Some(told) => (event(&told), Some(self)),
                None => (end("shutdown"), None),
            },
        }
    }
}

fn end(reason: &'static str) -> Event {
    named("end", &LiveData::End(EndBody { reason }))
}

fn event(told: &Told) -> Event {
    let nothing = LiveData::Nothing(NothingBody {});
    let count = |visits: &u64| LiveData::Count(CountBody { visits: *visits });
    match told {
        Told::Begun(at) => named("begun", &nothing).id(at.to_string()),
        Told::Interrupted => named("interrupted", &nothing),
        Told::Resumed => named("resumed", &nothing),
        Told::Gap => named("gap", &nothing),
        Told::Lost(visits) => named("lost", &count(visits)),
        Told::LeftOut(visits) => named("sampled", &count(visits)),
        Told::Visit(visit) => {
            let body = LiveData::Visit(Box::new(VisitBody::from(&visit.visit)));
            named("visit", &body).id(visit.id.to_string())
        }
    }
}

fn named(name: &'static str, data: &LiveData) -> Event {
    // Serialization of this type cannot fail.
    let text = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).data(text)
}
