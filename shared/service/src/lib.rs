//! What every Berth process needs: configuration, telemetry, health, drain, the reconcile loop.
