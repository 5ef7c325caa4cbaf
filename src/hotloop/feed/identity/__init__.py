"""What a dataset is made of: its code, its parameters, the files it names."""
