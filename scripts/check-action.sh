#!/usr/bin/env bash
# Checks a lock file, and appends the difference as a table to the summary of a job on GitHub.
# Environment: VRAMLAB, BASELINE, TOLERANCE, GITHUB_STEP_SUMMARY. Ends as `vramlab check` does.
set -uo pipefail
table="$(mktemp)"
trap 'rm -f "$table"' EXIT
"$VRAMLAB" check --baseline "$BASELINE" --tolerance "$TOLERANCE" --export-markdown "$table"
code=$?
{
  echo "### vramlab check: $([ "$code" = 0 ] && echo "nothing grew" || echo "failed")"
  echo
  cat "$table"
} >> "$GITHUB_STEP_SUMMARY"
exit "$code"
