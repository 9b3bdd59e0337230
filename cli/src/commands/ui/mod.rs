//! `vramlab ui`: the laboratory in a browser, on this machine.
//!
//! ```text
//! page ─► server (HTTP: who asks?) ─► workers (processes: how long, how much?) ─► engine (JSON: the answer of `predict`)
//! ```

mod engine;
mod fields;
mod files;
mod page;
mod server;
mod token;
mod workers;

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab::run::RunSpec;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::args::UiArgs;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::ui::Ui;
use engine::{Engine, known_network};
use files::Dropped;
use server::{Server, routes};
use workers::Workers;

/// Interval between checks whether the user asked to stop.
const LOOK: Duration = Duration::from_millis(100);

/// The most processes that answer.
const MOST_WORKERS: usize = 4;

/// Virtual memory of a process that answers. Bytes.
const MEMORY: u64 = 4 << 30;

/// The longest request of a process that answers. Bytes.
const MAX_LINE: u64 = 1 << 20;

/// Serves until the user stops it.
///
/// # Errors
/// An address that cannot be had; a link with a setting that no run has.
pub(super) fn run(args: &UiArgs, ui: &Ui) -> Result<Code> {
    if args.worker {
        return work(args, ui);
    }
    let settings = settings(args.link.as_deref())?;
    let device = |error: std::io::Error| Failure::new(Code::Device, error);
    let program = std::env::current_exe().map_err(device)?;
    let files = args.public.is_none().then(Dropped::new).transpose().map_err(device)?;
    let token = args.public.is_none().then(token::random).transpose().map_err(device)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(device)?;
    interrupt::silence();
    let folder = files.as_ref().map(|files| files.folder().to_path_buf());
    let ended = runtime.block_on(async {
        let wanted = args.address();
        let listener = TcpListener::bind(wanted).await;
        let listener =
            listener.map_err(|error| Failure::new(Code::Device, anyhow::anyhow!("--port: {wanted}: {error}")))?;
        let address = listener.local_addr().map_err(device)?;
        let hosts = match args.public {
            Some(_) => Vec::new(),
            None => ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", address.port())).to_vec(),
        };
        let link = link(address, token.as_deref(), &settings);
        ui.print(&format!("{link}\n"))?;
        ui.tell(match args.public {
            Some(_) if address.ip().is_unspecified() => {
                "Others open it by this machine's name or address in place of the zeros. Ctrl-C ends."
            }
            Some(_) => "Who reaches this address opens it in a browser. Ctrl-C ends.",
            None => "Open this address in a browser of this machine. Ctrl-C ends.",
        });
        if let (Some(folder), false) = (&folder, args.no_open) {
            open(folder, &link);
        }
        let most = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
        let workers = Workers::new(program, folder.clone(), most);
        let server = Arc::new(Server { token, hosts, workers, files: files.map(Mutex::new) });
        let stopped = async {
            while !interrupt::asked() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            ended = axum::serve(listener, routes(server)) => ended.map_err(device),
            () = stopped => Ok(()),
        }
    });
    // Connections that stay open are abandoned.
    runtime.shutdown_background();
    ended.map(|()| Code::Done)
}

/// Answers requests of standard input until it ends.
fn work(args: &UiArgs, ui: &Ui) -> Result<Code> {
    limit_memory();
    let engine = Engine { files: args.files.clone(), ui };
    let mut input = std::io::stdin().lock();
    loop {
        let mut request = String::new();
        let read = std::io::Read::take(&mut input, MAX_LINE).read_line(&mut request);
        if !read.is_ok_and(|bytes| bytes > 0) || !request.ends_with('\n') {
            return Ok(Code::Done);
        }
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{}", engine.answer(&request)).and_then(|()| out.flush());
        if written.is_err() {
            return Ok(Code::Done);
        }
    }
}

/// Bounds the memory of this process where the system can: beyond it the process ends, and the server says so.
fn limit_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
        // Without the limit the answers are the same.
        let _ = setrlimit(Resource::As, limit);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = MEMORY;
}

/// The settings of a link, `name=value&…`: what follows its `#`. A word alone is the name of a network.
///
/// # Errors
/// A setting that no run has, a network that is not known.
fn settings(link: Option<&str>) -> Result<String> {
    let link = link.unwrap_or_default();
    if !link.is_empty() && !link.contains(['#', '=']) {
        return Ok(format!("model={}", known_network(link)?));
    }
    let settings = link.rsplit('#').next().unwrap_or_default();
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        let name = setting.split('=').next().unwrap_or_default();
        RunSpec::default().with([(name, &Value::Null)])?;
    }
    Ok(settings.to_owned())
}

/// The address of the page, with these settings.
fn link(address: SocketAddr, token: Option<&str>, settings: &str) -> String {
    let token = token.map_or(String::new(), |token| format!("?token={token}"));
    let hash = if settings.is_empty() { "" } else { "#" };
    format!("http://{address}/{token}{hash}{settings}")
}

/// Opens a browser. Its command line would show the token to everyone on the machine: it gets a private file that leads to the address.
fn open(folder: &Path, link: &str) {
    let file = folder.join("open.html");
    let link = link.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    let html = format!("<!DOCTYPE html><title>vramlab</title><meta http-equiv=\"refresh\" content=\"0; url={link}\">");
    if std::fs::write(&file, html).is_err() {
        return;
    }
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let null = std::process::Stdio::null;
    // Without a browser the address is still there to be opened.
    let _ = std::process::Command::new(program).arg(file).stdin(null()).stdout(null()).stderr(null()).spawn();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_the_settings_of_another() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8421));
        let with = |token, given| settings(given).map(|settings| link(address, token, &settings));
        assert_eq!(with(Some("ab"), None).unwrap(), "http://127.0.0.1:8421/?token=ab");
        let shared = "http://127.0.0.1:1/?token=old#model=gpt2&batch=8";
        assert_eq!(with(Some("ab"), Some(shared)).unwrap(), "http://127.0.0.1:8421/?token=ab#model=gpt2&batch=8");
        assert_eq!(with(None, Some("model=mlp")).unwrap(), "http://127.0.0.1:8421/#model=mlp");
        assert_eq!(with(None, Some("gpt2")).unwrap(), "http://127.0.0.1:8421/#model=gpt2");
    }

    #[test]
    fn a_link_with_an_unknown_setting_is_an_error() {
        for unknown in ["#nonsense=1", "#nonsense", "model=gpt2&batchsize=8", "gpt9"] {
            assert_eq!(settings(Some(unknown)).unwrap_err().code, Code::Usage, "{unknown}");
        }
    }
}
