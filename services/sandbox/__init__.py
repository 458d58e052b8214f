"""The sandbox: model-written code under limits, isolated as well as the machine allows."""
