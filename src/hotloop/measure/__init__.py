"""Recording -> Steps: what happened becomes where the time went. numpy only, never torch."""
