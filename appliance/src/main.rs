//! The `holdfast` command.

mod cli;
mod exit_code;
mod failure;

fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(2).collect();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(_) => return exit_code::ExitCode::Unexpected.into(),
    };
    match runtime.block_on(cli::store::run(arguments)) {
        Ok(code) => code.into(),
        Err(failure) => failure.exit_code().into(),
    }
}
