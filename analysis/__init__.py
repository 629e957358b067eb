"""Tables, figures and reports from the files of records."""
