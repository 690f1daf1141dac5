//! From the words of the command line to the function that does it.

use super::args::{Cli, Command, Global};
use super::{
    backup, completion, config, demo, drill, explain, init, key, man, policy, reference, restore,
    run, snapshot, status, store, vault,
};
use crate::clock::Clock;
use crate::config::{Loaded, Settings, load};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::Output;
use crate::telemetry;

/// What a command line tool logs unless told otherwise: only what a person must look at.
const COMMAND_LOG_LEVEL: &str = "warn";

/// What every command gets.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Where answers go.
    pub(crate) output: Output,
    /// What time it is.
    pub(crate) clock: Clock,
    global: Global,
}

impl Context {
    /// The settings in force; read anew at each call.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        Settings::new(self.load()?)
    }

    /// The flags every command shares, to hand on to a child of this program.
    pub(crate) fn global(&self) -> &Global {
        &self.global
    }

    fn load(&self) -> Result<Loaded, Failure> {
        load(
            self.global.config.as_deref(),
            &self.global.set,
            std::env::vars(),
        )
    }
}

/// Does what the command line asks for.
pub(crate) async fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let context = Context {
        output: Output::new(cli.global.write_out),
        clock: Clock::system(),
        global: cli.global,
    };
    start_telemetry(&cli.command, &context)?;
    match &cli.command {
        Command::Demo(args) => demo::run(args, &context).await,
        Command::Init(args) => init::run(args, &context),
        Command::Run(args) => run::run(args, &context).await,
        Command::Status(args) => status::run(args, &context).await,
        Command::Backup(command) => Box::pin(backup::run(command, &context)).await,
        Command::Restore(args) => restore::run(args, &context).await,
        Command::Drill(command) => Box::pin(drill::run(command, &context)).await,
        Command::Vault(command) => vault::run(command, &context).await,
        Command::Key(command) => key::run(command, &context),
        Command::Policy(command) => policy::run(command, &context).await,
        Command::Config(command) => config::run(command, &context),
        Command::Store(words) => store::run(words.words.clone()).await,
        Command::Snapshot(command) => snapshot::run(command, &context).await,
        Command::Explain(args) => explain::run(args, &context),
        Command::Completion(args) => completion::run(args),
        Command::Man(args) => man::run(args, context.output),
        Command::Reference(args) => reference::run(args, context.output),
    }
}

/// The daemon logs as configured; a command only what needs attention, unless a flag says more.
fn start_telemetry(command: &Command, context: &Context) -> Result<(), Failure> {
    if matches!(command, Command::Store(_)) {
        return Ok(());
    }
    let global = &context.global;
    let (level, format) = match command {
        Command::Run(_) => {
            let log = context.load()?.config.appliance.log;
            (log.level, log.format)
        }
        _ => (COMMAND_LOG_LEVEL.to_owned(), telemetry::LogFormat::Auto),
    };
    telemetry::start(
        global.log_level.as_deref().unwrap_or(&level),
        global.log_format.unwrap_or(format),
    )
}
