class Viewer:
    def poll(self, model):
        client, _ = self.server.accept()
