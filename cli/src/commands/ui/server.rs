//! HTTP on one address: the page, one call for questions, one for files. Every request is checked before it is read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;

use super::files::{Dropped, MAX_FILE};
use super::workers::{Refused, Workers};
use super::{page, token};

/// The largest question. Bytes.
const MAX_QUESTION: usize = 64 << 10;

/// Time in which a request must have come.
const ARRIVES: Duration = Duration::from_secs(60);

/// The header with the token.
const TOKEN: HeaderName = HeaderName::from_static("x-vramlab-token");

/// What a server knows.
pub(super) struct Server {
    /// What every request must know; `None` for a public server.
    pub(super) token: Option<String>,
    /// Names by which browsers may call a server on this machine; empty for a public one.
    pub(super) hosts: Vec<String>,
    pub(super) workers: Workers,
    /// Files that were dropped; `None` for a public server.
    pub(super) files: Option<Mutex<Dropped>>,
}

/// The routes of a server.
pub(super) fn routes(server: Arc<Server>) -> Router {
    Router::new()
        .route("/", get(the_page))
        .route("/api", post(question))
        .route("/file", post(file))
        .fallback(async || refusal(StatusCode::NOT_FOUND, "there is nothing here"))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), guard))
        .with_state(server)
}

/// Checks who asks, and says to browsers what an answer may do.
async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let mut response = match server.refuses(request.method(), request.uri(), request.headers()) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, page::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

impl Server {
    /// Refuses requests under another name (a page elsewhere may give its own name this machine's address), of pages elsewhere, and without the token.
    fn refuses(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let said = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let host = said(header::HOST).unwrap_or_default();
        if !self.hosts.is_empty() && !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            return Some(refusal(StatusCode::MISDIRECTED_REQUEST, "this server is called by another name"));
        }
        let own = |origin: &str| origin.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host));
        if headers.contains_key(header::ORIGIN) && !said(header::ORIGIN).is_some_and(own) {
            return Some(refusal(StatusCode::FORBIDDEN, "pages elsewhere may not ask"));
        }
        let known = self.token.as_ref()?;
        let given = match *method {
            Method::POST => said(TOKEN).unwrap_or_default(),
            _ => uri.query().and_then(|query| query.strip_prefix("token=")).unwrap_or_default(),
        };
        let message = "open the address that vramlab ui printed: its token is missing here, or of an earlier start";
        (!token::is_same(known, given)).then(|| refusal(StatusCode::FORBIDDEN, message))
    }
}

async fn the_page() -> Response {
    let Ok(nonce) = token::random() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the system has no random numbers");
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".into()),
        (header::CONTENT_SECURITY_POLICY, page::policy(&nonce)),
    ];
    (headers, page::html(&nonce)).into_response()
}

async fn question(State(server): State<Arc<Server>>, headers: HeaderMap, body: Body) -> Response {
    let is_json =
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json {
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "JSON is expected");
    }
    let bytes = match read(body, MAX_QUESTION).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let Ok(text) = std::str::from_utf8(&bytes) else { return refusal(StatusCode::BAD_REQUEST, "no text") };
    match server.workers.answer(text).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(refused) => refusal(
            if refused == Refused::Busy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK },
            &refused.in_words(),
        ),
    }
}

/// Keeps a file: its name is the query, its contents the body.
async fn file(State(server): State<Arc<Server>>, uri: Uri, body: Body) -> Response {
    let Some(files) = &server.files else { return refusal(StatusCode::FORBIDDEN, "this server takes no files") };
    let name = uri.query().and_then(|query| query.strip_prefix("name=")).unwrap_or_default();
    let bytes = match read(body, MAX_FILE).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    match files.lock().unwrap_or_else(PoisonError::into_inner).keep(name, &bytes) {
        Ok(name) => ([(header::CONTENT_TYPE, "application/json")], json!({ "file": name }).to_string()).into_response(),
        Err(problem) => refusal(StatusCode::BAD_REQUEST, &problem),
    }
}

async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, Response> {
    match tokio::time::timeout(ARRIVES, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, &format!("more than {most} bytes, or cut off"))),
        Err(_) => Err(refusal(StatusCode::REQUEST_TIMEOUT, "the request did not come in time")),
    }
}

fn refusal(status: StatusCode, problem: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json!({ "error": problem }).to_string()).into_response()
}
