//! `vramlab mcp`: commands as the tools of an assistant, by the Model Context Protocol over standard input and output.
//!
//! Each call runs this program again. So the answers are the commands' own, and the end of a call never ends the server.

mod bounds;
mod folder;
mod tools;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;

use crate::args::McpArgs;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::ui::Ui;
use folder::Folder;
use tools::Call;

/// Interval between checks whether the user asked to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Time in which a run must end after it is asked to stop.
const PATIENCE: Duration = Duration::from_secs(5);

const INSTRUCTIONS: &str = "vramlab says how much GPU memory the training of a PyTorch network takes and whether it fits, without a GPU. \
     Files are named relative to the folder that the server was started with. Sizes in the JSON are bytes.";

/// Serves one client until it closes standard input, or the user stops it.
///
/// # Errors
/// A missing folder; a client that does not speak the protocol.
pub(super) fn run(args: &McpArgs, ui: &Ui) -> Result<Code> {
    let files = Folder::open("dir", &args.dir)?;
    #[cfg(target_os = "linux")]
    let scripts = args.allow_rehearse.as_deref().map(|path| Folder::open("allow-rehearse", path)).transpose()?;
    #[cfg(not(target_os = "linux"))]
    let scripts = None;
    let program = std::env::current_exe().map_err(|error| Failure::new(Code::Device, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Device, error))?;
    interrupt::silence();
    ui.tell(format!("serving {} on standard input and output", files.root().display()));
    let ended =
        runtime.block_on(serve(Server { program, files, scripts, seconds: args.seconds, turn: Mutex::new(()) }));
    // A read of standard input that never ends is abandoned.
    runtime.shutdown_background();
    ended.map(|()| Code::Done)
}

async fn serve(server: Server) -> Result<()> {
    let stopped = async {
        while !interrupt::asked() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let served = async {
        let service = server.serve(rmcp::transport::stdio()).await;
        let service = service.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
        service.waiting().await.map(drop).map_err(|error| Failure::new(Code::Device, error))
    };
    tokio::select! {
        ended = served => ended,
        () = stopped => Ok(()),
    }
}

struct Server {
    program: PathBuf,
    files: Folder,
    /// The folder of the scripts that may be run.
    scripts: Option<Folder>,
    /// Maximum time of a call that runs no script.
    seconds: u32,
    /// Calls run one after the other.
    turn: Mutex<()>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("vramlab", env!("VRAMLAB_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |tool: &tools::Tool| Tool::new(tool.name, tool.description(), Arc::new(tool.schema()));
        Ok(ListToolsResult::with_all_items(tools::offered(self.scripts.is_some()).map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut offered = tools::offered(self.scripts.is_some());
        let Some(tool) = offered.find(|tool| tool.name == request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None));
        };
        let given = request.arguments.unwrap_or_default();
        let answer = match tool.call(&given, &self.files, self.scripts.as_ref()) {
            Ok(call) => {
                let _turn = self.turn.lock().await;
                self.answer(call, context.ct.cancelled()).await
            }
            Err(problem) => Err(problem),
        };
        Ok(answer.unwrap_or_else(|problem| CallToolResult::error(vec![ContentBlock::text(problem)])).into())
    }
}

/// A run that has ended.
struct Ran {
    status: ExitStatus,
    /// The beginning of its standard output.
    answer: String,
    /// The end of its standard error.
    said: String,
}

impl Server {
    /// Returns the answer of a run, as text and as JSON.
    ///
    /// # Errors
    /// The run's standard error, if it has no answer; it took too long.
    async fn answer(&self, call: Call, cancelled: impl Future<Output = ()>) -> Result<CallToolResult, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no folder for the answer: {error}"))?;
        let file = folder.path().join("answer.json");
        let ran = self.ran(call, &file, cancelled).await;
        let Ran { status, answer, said } = ran.map_err(|error| format!("vramlab did not run to its end: {error}"))?;
        // 1: it does not fit, which is an answer.
        if !matches!(status.code(), Some(0 | 1)) {
            return Err(if said.is_empty() { format!("vramlab ended: {status}") } else { said });
        }
        let (json, too_large) = bounds::json(&file);
        // If not even a batch fits, only standard error says so.
        let texts = [answer, said].into_iter().filter(|text| !text.is_empty()).chain(too_large);
        let mut result = CallToolResult::success(texts.map(ContentBlock::text).collect());
        result.structured_content = json;
        Ok(result)
    }

    /// Runs the program to its end, until the client cancels, or until its time is over.
    async fn ran(&self, call: Call, json: &Path, cancelled: impl Future<Output = ()>) -> io::Result<Ran> {
        let folder = if call.is_script { self.scripts.as_ref() } else { None }.unwrap_or(&self.files);
        let time = bounds::time(self.seconds, call.is_script);
        let mut command = tokio::process::Command::new(&self.program);
        command.env(crate::args::ONLY_BUILT_IN, "1");
        command.args(call.words).args(["--color=never", "--json"]).arg(json).args(call.last);
        command.current_dir(folder.root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let id = child.id();
        if !call.is_script {
            bounds::limit_memory(id);
        }
        let (mut input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(output), Some(error)) = (output, error) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let ran = async {
            let written = async {
                if let Some(mut input) = input.take() {
                    // A run that does not read its input has said why.
                    let _ = input.write_all(call.input.as_bytes()).await;
                }
                Ok(())
            };
            let ((), answer, said) = tokio::try_join!(written, bounds::beginning(output), bounds::end(error))?;
            Ok(Ran { status: child.wait().await?, answer, said })
        };
        tokio::pin!(ran);
        let why = tokio::select! {
            ran = &mut ran => return ran,
            () = cancelled => "cancelled".to_string(),
            () = tokio::time::sleep(time) => bounds::too_long(time),
        };
        ask_to_stop(id);
        // A run that does not stop is killed when `child` is dropped.
        let _ = tokio::time::timeout(PATIENCE, ran).await;
        Err(io::Error::new(io::ErrorKind::Interrupted, why))
    }
}

/// Asks a process to end, so that what it started ends with it.
fn ask_to_stop(id: Option<u32>) {
    #[cfg(unix)]
    if let Some(id) = id.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
    #[cfg(not(unix))]
    let _ = id;
}
