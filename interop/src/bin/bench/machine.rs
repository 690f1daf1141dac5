//! The machine under the figures, and the page that keeps them.

use anyhow::{Context as _, Result};

/// A part of the page that a run replaces.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Section {
    /// One member.
    Single,
    /// Several.
    Cluster,
}

impl Section {
    const fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Single => ("<!-- bench: begin -->", "<!-- bench: end -->"),
            Self::Cluster => (
                "<!-- bench of a cluster: begin -->",
                "<!-- bench of a cluster: end -->",
            ),
        }
    }
}

/// One line: processor, cores, memory, kernel.
pub(crate) fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let cpu = value(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim();
    format!(
        "Machine: {cpu}, {cores} cores, {memory} of memory, Linux {kernel}; the load generator\nruns on the same cores."
    )
}

/// `page` with the text between the two marks of a section replaced.
pub(crate) fn replace_section(page: &str, section: Section, text: &str) -> Result<String> {
    let (begin, end) = section.marks();
    let (before, rest) = page
        .split_once(begin)
        .context("the page has no begin mark")?;
    let (_, after) = rest.split_once(end).context("the page has no end mark")?;
    Ok(format!("{before}{begin}\n{text}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        for section in [Section::Single, Section::Cluster] {
            let (begin, end) = section.marks();
            let page = |text: &str| format!("# A\n{begin}\n{text}\n{end}\nkept\n");
            let new = replace_section(&page("old"), section, "new").unwrap();
            assert_eq!(new, page("new"));
        }
    }
}
