//! The command line: parse, load the configuration, run one command, print its answer.
//!
//! Headless commands send the same commands to the engine as the workbench, and print the same state.
//! Nothing outside this folder and `ui` prints.

pub mod answer;
pub mod args;
pub mod changes;
pub mod connect;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod exit;
#[cfg(test)]
pub(crate) mod fixture;
pub mod guard;
pub mod init;
pub mod isolate;
pub mod json;
#[cfg(feature = "tui")]
pub mod keymap;
pub mod keys;
pub mod lab;
pub mod logging;
pub mod micro;
pub mod output;
pub mod patches;
pub mod progress;
pub mod recall;
pub mod schema;
pub mod search_plan;
pub mod session;
pub mod session_files;
pub mod session_replay;
pub mod settings;
pub mod shell;
pub mod stream;
pub mod style;
pub mod table;
pub mod transcript;
pub mod truth;
pub mod unsupported;
pub mod workbench;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use answer::{Answer, Failed};
use args::lab::LabAction;
use args::session::SessionAction;
use args::{Cli, Command, JsonForm, PatchesAction};
use exit::Status;
use json::ErrorCode;
use schema::SchemaAnswer;
use style::Style;
use unsupported::refuse;

use crate::config::{Config, nearest};
use crate::engine::diagnostic::Diagnostic;
use crate::paths::Paths;

/// What every command is given.
#[derive(Clone, Debug)]
pub struct Context {
    /// The settings of this run.
    pub config: Config,
    /// The folders of this user.
    pub paths: Paths,
    /// The configuration file that is looked for.
    pub config_file: std::path::PathBuf,
    /// The form of the output.
    pub json: Option<JsonForm>,
    /// Whether progress is kept quiet.
    pub quiet: bool,
    /// Style of standard output.
    pub style: Style,
    /// What is wrong with the configuration, for commands that work without it.
    pub config_remark: Option<Diagnostic>,
}

/// Runs the program with these arguments, the program's name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    match Cli::try_parse_from(&args) {
        Ok(cli) => run(&cli),
        Err(error) => not_parsed(&error, wants_json(&args), mistyped(&args)).into(),
    }
}

/// Runs one command.
pub fn run(cli: &Cli) -> ExitCode {
    let json = cli.global.json;
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let (answer, style) = match prepare(cli, no_color) {
        Ok(context) => {
            let remark = context.config_remark.clone();
            let guard = logging::start(&context.paths.logs(), context.config.text("log"));
            let log_remark = guard.as_ref().err().cloned();
            let answer = dispatch(cli, &context).map(|a| a.map(|a| a.diagnostics(remark).diagnostics(log_remark)));
            (answer, context.config.text("color").to_owned())
        }
        Err(failed) => (Err(failed), cli.global.color.clone().unwrap_or_default()),
    };
    let status = match answer {
        Ok(Some(answer)) => output::answer(&answer, json, output::stdout_style(&style, no_color)),
        Ok(None) => Status::Done,
        Err(failed) => output::failed(&failed, json, output::stderr_style(&style, no_color)),
    };
    status.into()
}

fn prepare(cli: &Cli, no_color: bool) -> Result<Context, Failed> {
    let paths = Paths::from_env().map_err(|error| {
        Failed::world(ErrorCode::Io, error.to_string()).hint("set `HOME`, or `XDG_STATE_HOME` and `XDG_CONFIG_HOME`")
    })?;
    let (config_file, _) = settings::file(&paths, &cli.global);
    // What describes the program must work where the configuration is broken: one turns to it then.
    let describes =
        matches!(cli.command, Some(Command::Doctor(_) | Command::Schema(_) | Command::Completions(_) | Command::Man));
    let (config, config_remark) = match settings::load(&paths, &cli.global) {
        Ok(config) => (config, None),
        Err(failed) if describes => {
            let mut remark = Diagnostic::warning("config", failed.error.message);
            remark.hint = failed.error.hint;
            (Config::default(), Some(remark))
        }
        Err(failed) => return Err(failed),
    };
    let style = output::stdout_style(config.text("color"), no_color);
    Ok(Context { config, paths, config_file, json: cli.global.json, quiet: cli.global.quiet, style, config_remark })
}

/// Runs the command; `None` is an answer that is printed already.
fn dispatch(cli: &Cli, context: &Context) -> Result<Option<Answer>, Failed> {
    let Some(command) = &cli.command else { return workbench(cli, context) };
    if let Some(case) = &cli.case {
        let message = format!("`{}` stands before the command and is not used by it", case.display());
        return Err(Failed::usage(ErrorCode::Usage, message).hint("give the case after the command"));
    }
    if context.json == Some(JsonForm::Stream) && !streams(command) {
        let message = "this command has nothing to stream";
        return Err(Failed::usage(ErrorCode::Usage, message).hint("use `--json`"));
    }
    let style = context.style;
    let sessions = &context.paths.sessions;
    let answer = match command {
        Command::Keys(args) => user_keys(context, args.markdown)?,
        Command::Commands => keys::commands(style),
        Command::Completions(args) => shell::completions(args.shell),
        Command::Man => shell::man()?,
        Command::Config => settings::config(&context.config, &context.paths, &context.config_file, style),
        Command::Schema(args) => match schema::schema(args.name.as_deref())? {
            SchemaAnswer::List(answer) => *answer,
            SchemaAnswer::Schema(text) => {
                output::stdout_line(&text)?;
                return Ok(None);
            }
        },
        Command::Doctor(args) if args.bundle => {
            return Err(refuse("write a bundle", "`patchbench doctor --json` prints what it would hold"));
        }
        Command::Doctor(_) => doctor::doctor(context),
        Command::Session { action } => match action {
            SessionAction::List => session::list(sessions, style)?,
            SessionAction::Show(args) => match args.transcript {
                Some(trial) => transcript::show(sessions, &args.session, trial, style)?,
                None => session::show(sessions, &args.session, style)?,
            },
            SessionAction::Name { session, name } => session_files::rename(sessions, session, name)?,
            SessionAction::Tag { session, tag, remove } => session_files::tag(sessions, session, tag, *remove)?,
            SessionAction::Snapshot { session, name } => {
                session_files::snapshot(sessions, session, name, connect::run::driver(&context.config))?
            }
            SessionAction::Export { session, out, with_transcripts } => {
                session_files::export(sessions, session, out, *with_transcripts)?
            }
            SessionAction::Import { file, name } => session_files::import(sessions, file, name.as_deref())?,
            SessionAction::Replay(args) => session_replay::replay(sessions, &args.session, &args.at, style)?,
            SessionAction::Verify(args) => session::verify(sessions, &args.session, style)?,
            SessionAction::Repair(args) => session::repair(sessions, &args.session)?,
            SessionAction::Resume(args) if args.finish || args.undo || !workbench::possible(context) => {
                connect::resume::headless(context, args)?
            }
            SessionAction::Resume(args) => return workbench::resume(context, &args.session).map(|()| None),
            SessionAction::Diff { .. } => {
                return Err(refuse("compare sessions", "compare the output of `session show --json`"));
            }
        },
        Command::Init(args) => connect::init::init(context, args)?,
        Command::Changes(args) => connect::changes::changes(context, args)?,
        Command::Diff(args) => connect::diff::diff(context, args)?,
        Command::Truth(args) => connect::measure::truth(context, args)?,
        Command::Patches(args) => match (&args.case, &args.action) {
            (Some(case), None) => connect::patches::table(context, case, args.session)?,
            (_, Some(PatchesAction::Import(args))) => connect::patches::import(context, args)?,
            (_, Some(PatchesAction::Guard(args))) => connect::guard::guard(args)?,
            (_, Some(PatchesAction::Explain { id, case, session })) => {
                connect::patches::explain(context, id, case.as_deref(), session.as_deref())?
            }
            (None, None) => return Err(refusal(command)),
        },
        Command::Recall(args) if args.action.is_none() => connect::measure::recall(context, args)?,
        Command::Micro(args) => connect::measure::micro(context, args)?,
        Command::Isolate(args) => connect::measure::isolate(context, args)?,
        Command::Toggle(args) => connect::change::toggle(context, args)?,
        Command::Restart(args) => connect::change::restart(context, args)?,
        Command::Restore(args) => connect::restore::restore(context, args)?,
        Command::Elevate(args) => connect::elevate::elevate(context, args)?,
        Command::Demo(args) if args.headless => connect::demo::headless(context, args)?,
        Command::Demo(args) => return workbench::demo(context, args).map(|()| None),
        Command::Lab { action } => match action {
            LabAction::Serve(_) if context.json.is_some() => {
                let message = "`lab serve` writes the log of a server to standard output, not a report";
                return Err(Failed::usage(ErrorCode::Usage, message).hint("leave `--json` out"));
            }
            LabAction::Serve(args) => return lab::serve(args).map(|()| None),
            LabAction::Install(args) => lab::install(args)?,
            LabAction::Scenarios => lab::scenarios(crate::lab::scenario::names().map(str::to_owned).collect()),
            LabAction::Reveal { deployment } => lab::reveal(&lab::read(sessions, deployment.as_deref())?, style),
        },
        other => return Err(refusal(other)),
    };
    Ok(Some(answer))
}

/// Whether a command has events to print while it runs.
fn streams(command: &Command) -> bool {
    matches!(
        command,
        Command::Demo(_)
            | Command::Isolate(_)
            | Command::Recall(_)
            | Command::Micro(_)
            | Command::Toggle(_)
            | Command::Restart(_)
            | Command::Restore(_)
    )
}

/// Opens the workbench on a case, or says what there is to open.
fn workbench(cli: &Cli, context: &Context) -> Result<Option<Answer>, Failed> {
    if let Some(case) = cli.case.as_ref().filter(|case| !case.exists()) {
        return Err(no_such_case(&case.to_string_lossy()));
    }
    if context.json.is_some() {
        let message = "the workbench does not print JSON";
        return Err(Failed::usage(ErrorCode::Usage, message).hint("name a command, such as `truth` or `isolate`"));
    }
    // What `init` writes is opened without being named.
    let here = std::path::Path::new("case.toml");
    let found = (cli.case.is_none() && here.is_file()).then(|| here.to_owned());
    let Some(case) = cli.case.as_ref().or(found.as_ref()) else {
        let list = session::list(&context.paths.sessions, context.style)?;
        return Err(Failed::usage(ErrorCode::Usage, format!("no case was given\n\n{}", list.text))
            .hint("`patchbench demo` opens the lab, `patchbench CASE` a case, `session resume` a session"));
    };
    workbench::case(context, case).map(|()| None)
}

/// A word where a case file should stand, and is none: perhaps a command was meant.
fn no_such_case(word: &str) -> Failed {
    let failed = Failed::usage(ErrorCode::Case, format!("there is no case file `{word}`"));
    match nearest_command(word) {
        Some(near) => failed.hint(format!("did you mean the command `{near}`?")),
        None => failed.hint("`patchbench demo` works without a case"),
    }
}

fn nearest_command(word: &str) -> Option<String> {
    let command = <Cli as clap::CommandFactory>::command();
    nearest(word, command.get_subcommands().map(clap::Command::get_name)).map(str::to_owned)
}

/// The first word of a line that did not parse, if it is neither a command nor a file.
fn mistyped(args: &[OsString]) -> Option<&str> {
    let word = args.iter().skip(1).find_map(|arg| arg.to_str().filter(|a| !a.starts_with('-')))?;
    let command = <Cli as clap::CommandFactory>::command();
    let known = command.get_subcommands().any(|sub| sub.get_name() == word);
    (!known && !std::path::Path::new(word).exists() && nearest_command(word).is_some()).then_some(word)
}

/// The keys as they are in force for this user.
#[cfg(feature = "tui")]
fn user_keys(context: &Context, as_markdown: bool) -> Result<Answer, Failed> {
    let (map, remarks) = keymap::of_user(context)?;
    let bound = map.bound().map(|b| (b.keys.clone(), b.run.clone(), b.from_user)).collect();
    Ok(keys::keys(Some(bound), as_markdown, context.style).diagnostics(remarks))
}

/// The keys of the command table: without a screen there is no keymap to read.
#[cfg(not(feature = "tui"))]
#[expect(clippy::unnecessary_wraps, reason = "with a screen, the user's keymap may be broken")]
fn user_keys(context: &Context, as_markdown: bool) -> Result<Answer, Failed> {
    Ok(keys::keys(None, as_markdown, context.style))
}

/// What is said about a command that is not connected.
fn refusal(command: &Command) -> Failed {
    match command {
        Command::Recall(_) => {
            refuse("import a conversation", "run the suite of the case with `patchbench recall CASE`")
        }
        Command::Replica { .. } => refuse("manage replicas", "start a second deployment by hand and give it a case"),
        Command::Reference { .. } => refuse("record or compare logprobs", "compare recall with `patchbench recall`"),
        Command::Proxy(_) => refuse("record client conversations", "run the suite of the case"),
        Command::Watch(_) => refuse("look on at a session", "`patchbench session show` prints it as it is now"),
        Command::Attach(_) => refuse("attach to a session", "`patchbench session resume` opens it again"),
        Command::Report(_) => refuse("write reports", "`patchbench session show --json` prints what there is"),
        Command::Check(_) => {
            refuse("check against a snapshot", "run `patchbench recall CASE`; its status is 1 on a symptom")
        }
        _ => refuse("do this", "see `patchbench --help`"),
    }
}

/// Prints what clap has to say: help and version are data, anything else is a usage error.
fn not_parsed(error: &clap::Error, json: bool, mistyped: Option<&str>) -> Status {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // A mistyped command is read as a case, and what follows it as too much.
    if let Some(word) = mistyped.filter(|_| !is_help) {
        return output::failed(&no_such_case(word), json.then_some(JsonForm::Object), Style::PLAIN);
    }
    if is_help && json {
        return output::answer(&shell::text(&error.render().to_string()), Some(JsonForm::Object), Style::PLAIN);
    }
    if !json {
        // Clap knows the right stream and whether to colour it; a reader that went away is no error.
        let _ = error.print();
        return if is_help { Status::Done } else { Status::Usage };
    }
    let text = error.render().to_string();
    let (message, tip) = usage_sentence(&text);
    let failed =
        Failed::usage(ErrorCode::Usage, message).hint(tip.unwrap_or_else(|| "see `patchbench --help`".to_owned()));
    output::failed(&failed, Some(JsonForm::Object), Style::PLAIN)
}

/// Clap's first paragraph as one sentence, and its tip.
fn usage_sentence(text: &str) -> (String, Option<String>) {
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = paragraph.join(" ").trim_start_matches("error: ").to_owned();
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: ").map(str::to_owned));
    (message, tip)
}

/// Whether `--json` stands among arguments that could not be parsed.
fn wants_json(args: &[OsString]) -> bool {
    args.iter()
        .skip(1)
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--json" || arg.to_str().is_some_and(|a| a.starts_with("--json=")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn json_is_seen_in_a_line_that_does_not_parse() {
        assert!(wants_json(&words("patchbench bad --json")));
        assert!(wants_json(&words("patchbench --json=stream bad")));
        assert!(!wants_json(&words("patchbench bad -- --json")));
        assert!(!wants_json(&words("patchbench bad --jsonx")));
    }

    #[test]
    fn a_mistyped_command_with_arguments_was_read_as_a_case_with_too_many() {
        let check = |line: &str, expect: Option<&str>| {
            let args = words(line);
            assert!(Cli::try_parse_from(&args).is_err(), "{line}");
            assert_eq!(mistyped(&args), expect, "{line}");
        };
        check("patchbench isolat case.toml", Some("isolat"));
        check("patchbench --json recal case.toml --suite x", Some("recal"));
        check("patchbench truth", None);
        check("patchbench unlike-anything else", None);
        assert_eq!(no_such_case("isolat").error.hint.as_deref(), Some("did you mean the command `isolate`?"));
    }

    #[test]
    fn a_usage_error_is_a_whole_sentence() {
        let error = Cli::try_parse_from(words("patchbench truth")).unwrap_err();
        let (message, _) = usage_sentence(&error.render().to_string());
        assert_eq!(message, "the following required arguments were not provided: <CASE>");
        let error = Cli::try_parse_from(words("patchbench keys --jsn")).unwrap_err();
        let (message, tip) = usage_sentence(&error.render().to_string());
        assert_eq!(message, "unexpected argument '--jsn' found");
        assert_eq!(tip.as_deref(), Some("a similar argument exists: '--json'"));
    }

    #[test]
    fn a_refusal_never_falls_through_to_the_vague_one() {
        for line in [
            "recall import f",
            "replica list c",
            "reference record c",
            "proxy c",
            "watch s",
            "attach s",
            "report s --out d",
            "check c --against s",
        ] {
            let cli = Cli::try_parse_from(words(&format!("patchbench {line}"))).unwrap();
            let failed = refusal(cli.command.as_ref().unwrap());
            assert_eq!(failed.error.code, ErrorCode::NotInThisVersion);
            assert!(!failed.to_string().ends_with("do this"), "{line}");
        }
    }
}
