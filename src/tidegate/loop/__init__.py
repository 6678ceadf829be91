"""The control loop: backend, controller, journal, controls, replay, policy stack and billing."""
