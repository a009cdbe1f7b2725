"""Microsoft Entra tokens for providers on Azure. Their wire formats are those of other folders."""
