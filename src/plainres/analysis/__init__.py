"""Run folders -> tidy tables -> matched differences with intervals. Reads files only; never imports torch."""
