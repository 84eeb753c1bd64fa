//! Server-sent events from a request's events.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::lab::scheduler::Event;

/// Answers with one or more `data:` lines for each event, then `[DONE]`.
///
/// When the client goes away the body is dropped, and with it the receiver: the engine cancels.
pub(super) fn respond(
    mut events: UnboundedReceiver<Event>,
    first: &[Value],
    mut lines: impl FnMut(Event) -> Vec<Value> + Send + 'static,
) -> Response {
    let mut open = true;
    let mut pending = Some(frame(first));
    let body = stream::poll_fn(move |context| {
        use std::task::Poll;
        if let Some(text) = pending.take().filter(|t| !t.is_empty()) {
            return Poll::Ready(Some(Ok::<_, std::convert::Infallible>(text)));
        }
        while open {
            match events.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(event)) => {
                    open = !matches!(event, Event::Finished(_));
                    let mut text = frame(&lines(event));
                    if !open {
                        text.push_str("data: [DONE]\n\n");
                    }
                    if !text.is_empty() {
                        return Poll::Ready(Some(Ok(text)));
                    }
                }
                Poll::Ready(None) => open = false,
            }
        }
        Poll::Ready(None)
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

fn frame(values: &[Value]) -> String {
    let mut out = String::new();
    for value in values {
        let _ = write!(out, "data: {value}\n\n");
    }
    out
}
