//! Messages of `berth dev` to the user.

use std::path::Path;
use std::time::Duration;

use berth_host::MountTable;

use super::identities::Proof;
use super::layout::{Layout, PLUGIN};
use super::namespace;
use super::own_plugin::OwnPlugin;
use super::supervisor::Ended;
use crate::span;

/// A process ended and will be restarted.
pub fn restarted(ended: &Ended) -> String {
    let Ended { name, how, times, again_in, last_line, .. } = ended;
    let log_end = last_line.as_ref().map(|line| format!("\n  its log ends with: {line}"));
    let again_in = span::short(*again_in);
    let log_end = log_end.unwrap_or_default();
    format!("{name} {how}; it starts again in {again_in} (restart {times}){log_end}")
}

/// Everything is healthy: addresses, and commands to try.
pub fn summary(layout: &Layout, nodes: &[String], url: &str, after: Duration) -> String {
    let dir = layout.dir().display();
    let join = if namespace::is_entered() {
        format!(
            "  join     {} bash\n           (the volumes are mounted in there only)\n",
            namespace::how_to_join()
        )
    } else {
        String::new()
    };
    format!(
        "healthy after {}: nodes {}, each with a driver of plugin {plugin}\n  \
           bus      {url}\n  \
           state    {dir}; a log per process in {dir}/log\n\
         {join}  \
           next     source {dir}/env\n           \
                    berth plugin status\n           \
                    berth-csi-dev provision --backend {dir}/backend --volume data\n           \
                    berth volume init && berth volume register volume.toml\n           \
                    berth run --node {} --volume data -- sh -c 'date >> $BERTH_VOLUME_DATA/log'\n\
         Ctrl-C stops everything in order; the state stays.",
        span::short(after),
        nodes.join(", "),
        nodes.first().map_or("n1", String::as_str),
        plugin = PLUGIN,
    )
}

/// The user's own driver was started or is awaited; how to see its state.
pub fn own_plugin(plugin: &OwnPlugin) -> String {
    let id = &plugin.id;
    let hint = if plugin.reads_only_the_variable() {
        "\n  it is told its endpoint by CSI_ENDPOINT; where it takes an argument, add that to \
         `command`, such as \"--endpoint=${CSI_ENDPOINT}\""
    } else {
        ""
    };
    format!("plugin {id} is added on each node; see how it is: berth plugin status {id}{hint}")
}

/// The file to source in a shell.
pub fn env_file(url: &str, person: Option<&Proof>, binaries: &Path) -> String {
    let quote = |path: &Path| shell_quoted(&path.display().to_string());
    let proof = match person {
        Some(Proof { creds, authority }) => format!(
            "export BERTH_CREDS={creds} NATS_CREDS={creds}\n\
             export BERTH_TLSCA={ca} NATS_CA={ca}\n",
            creds = quote(creds),
            ca = quote(authority),
        ),
        None => "export BERTH_INSECURE=true\n".to_owned(),
    };
    let join_command = namespace::how_to_join();
    let join = if namespace::is_entered() {
        format!(
            "\n# Join its namespaces, where its volumes are mounted:\n#   {join_command} bash\n"
        )
    } else {
        String::new()
    };
    format!(
        "# Written anew by each `berth dev`. To source in a shell: then `berth` is found, and\n\
         # `berth` and `nats` find the bus.\n\
         export BERTH_NATS_URL={url} NATS_URL={url}\n{proof}\
         export PATH={}:\"$PATH\"\n{join}",
        quote(binaries)
    )
}

fn shell_quoted(text: &str) -> String {
    // `'\''` ends the quotes, adds a quote, and starts them again.
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Reported after all processes have stopped: mounts outlive processes in a mount namespace that
/// remains.
pub fn what_stays(layout: &Layout) -> String {
    let mounts = MountTable::read_blocking().unwrap_or_default();
    let left_mounts: Vec<String> =
        mounts.beneath(layout.dir()).map(|point| point.display().to_string()).collect();
    if left_mounts.is_empty() || namespace::is_entered() {
        return "stopped".to_owned();
    }
    format!(
        "stopped; volumes that were in use are still mounted, for the next `berth dev` here:\n  {}",
        left_mounts.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_can_be_sourced_whatever_the_directory_is_called() {
        let file = env_file("nats://127.0.0.1:20123", None, Path::new("/it's/a $dir"));
        let script = format!("{file}printf '%s\\n' \"${{PATH%%:*}}\" \"$BERTH_NATS_URL\"");
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed, "/it's/a $dir\nnats://127.0.0.1:20123\n");
    }
}
