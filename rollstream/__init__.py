"""What users import and run: the command line, the one-process runner, the producer of prompts, the trainer client."""
